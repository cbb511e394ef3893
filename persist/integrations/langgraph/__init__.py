"""LangGraph on persist: `PersistSaver`, `PersistStore` and `StrictSerializer`. Needs the extra `langgraph`."""

try:
    from persist.integrations.langgraph.saver import PersistSaver
    from persist.integrations.langgraph.store import PersistStore
    from persist.integrations.langgraph.strict import StrictSerializer
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("langgraph", "langchain_core"):
        raise
    raise ImportError("persist.integrations.langgraph needs LangGraph: pip install 'agent-persist[langgraph]'.") from error

__all__ = ["PersistSaver", "PersistStore", "StrictSerializer"]
