"""MCP on persist: `PersistEventStore` resends what a client missed after losing its connection. Needs the extra `mcp`."""

try:
    from persist.integrations.mcp.event_store import (
        InvalidMessage,
        PersistEventStore,
        PersistSessionManager,
        SessionBinding,
        SessionEventStore,
        UnboundEventStore,
        current_session,
    )
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types"):
        raise
    raise ImportError("persist.integrations.mcp needs the MCP SDK: pip install 'agent-persist[mcp]'.") from error

__all__ = [
    "InvalidMessage",
    "PersistEventStore",
    "PersistSessionManager",
    "SessionBinding",
    "SessionEventStore",
    "UnboundEventStore",
    "current_session",
]
