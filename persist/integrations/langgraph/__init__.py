"""LangGraph on persist: `PersistSaver`, a checkpointer, and `PersistStore`, a store.

Needs the extra `langgraph`.
"""

try:
    from persist.integrations.langgraph.saver import PersistSaver
    from persist.integrations.langgraph.store import PersistStore
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("langgraph", "langchain_core"):
        raise
    raise ImportError("persist.integrations.langgraph needs LangGraph: pip install 'agent-persist[langgraph]'.") from error

__all__ = ["PersistSaver", "PersistStore"]
