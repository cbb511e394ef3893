"""MCP on persist: `PersistEventStore` keeps what a server sent, so that a client that lost its connection is sent the rest.

Needs the extra `mcp`.
"""

try:
    from persist.integrations.mcp.binding import SessionBinding, current_session
    from persist.integrations.mcp.encoding import InvalidMessage
    from persist.integrations.mcp.event_store import PersistEventStore, SessionEventStore, UnboundEventStore
    from persist.integrations.mcp.manager import PersistSessionManager
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
