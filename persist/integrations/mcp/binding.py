"""Which session the running request belongs to, for those who cannot give each transport an event store of its own."""

from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_HEADER = b"mcp-session-id"

current_session: ContextVar[str | None] = ContextVar("current_session", default=None)
"""The session that PersistEventStore is bound to in this context; None: to none, and it refuses."""


class _Key(str):
    """What the events of a session are kept under. It lives as long as the tasks of the session, whose contexts hold it."""

    __slots__ = ("__weakref__",)


class SessionBinding:
    """An ASGI application around that of an MCP server: binds PersistEventStore to the session of each request.

    For a server that makes its session manager itself: `SessionBinding(server.streamable_http_app(event_store=...))`. The request
    that opens a session does not know its id yet, so its events are kept under a random key. The tasks that serve the session
    run in the context of that request, and later requests find the key by the id.
    """

    def __init__(self, app: Application) -> None:
        self.app = app
        self._keys: WeakValueDictionary[bytes, _Key] = WeakValueDictionary()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request, bound to its session; one with an unknown session is bound to none."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name.lower() == _HEADER), None)
        key = _Key(uuid4().hex) if given is None else self._keys.get(given)

        async def noting(message: Message) -> None:
            if given is None and key is not None and message["type"] == "http.response.start":
                for name, value in message.get("headers", ()):
                    if name.lower() == _HEADER:
                        self._keys[value] = key
            await send(message)

        token = current_session.set(key)
        try:
            await self.app(scope, receive, noting)
        finally:
            current_session.reset(token)
