"""PersistSessionManager: the MCP SDK's session manager, which gives each session an event store of its own."""

from typing import Any

from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from persist.integrations.mcp.encoding import InvalidMessage
from persist.integrations.mcp.event_store import PersistEventStore


class _BoundTransports(dict[str, StreamableHTTPServerTransport]):
    """The transports by session. Each gets the event store of its session when the manager registers it, before any request."""

    def __init__(self, events: PersistEventStore) -> None:
        super().__init__()
        self._events = events

    def __setitem__(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        transport._event_store = self._events.for_session(session_id)
        super().__setitem__(session_id, transport)


class PersistSessionManager(StreamableHTTPSessionManager):
    """A StreamableHTTPSessionManager whose clients are sent the missed messages of their own session, and of no other.

    It takes what the framework's manager takes, with `event_store` a PersistEventStore.
    """

    def __init__(self, app: Any, event_store: PersistEventStore, **options: Any) -> None:
        if not isinstance(event_store, PersistEventStore):
            raise InvalidMessage("event_store", f"expected a PersistEventStore, got {type(event_store).__name__}.")
        super().__init__(app, event_store, **options)
        self._server_instances = _BoundTransports(event_store)
