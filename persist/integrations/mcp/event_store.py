"""PersistEventStore and SessionEventStore: the MCP SDK's EventStore over a Store or an AsyncStore."""

import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, JSONRPCMessage
from pydantic import TypeAdapter

from persist.db.values.escaping import escape_text, unescape_text
from persist.errors import InvalidValue, PersistError, shown
from persist.framework_state.replay_streams.repository import ReplayMessages, ReplaySessions
from persist.framework_state.replay_streams.schemas import ReplayMessage
from persist.integrations.store_bridge import InvalidForFramework, StoreBridge, kind_of
from persist.store.async_store import AsyncStore
from persist.store.store import Store

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
_HEADER = b"mcp-session-id"
current_session: ContextVar[str | None] = ContextVar("current_session", default=None)
"""The session that PersistEventStore is bound to in this context; None: to none, and it refuses."""


class _Key(str):
    """The key of a session's events. The binding lives as long as the session's tasks, whose contexts hold it."""

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


_MESSAGES: TypeAdapter[JSONRPCMessage] = TypeAdapter(JSONRPCMessage)
_PLAIN = frozenset({str, int, float, bool, type(None)})


class InvalidMessage(InvalidForFramework, MCPError):  # noqa: N818  # named like the errors it stands among
    """A message or argument that cannot be stored: an InvalidValue, and also an MCPError of the framework."""

    _before = (INVALID_PARAMS,)


def text_of(message: JSONRPCMessage) -> str:
    """The JSON text of a message, with the fields that the transport sends. Raises InvalidMessage for what would change."""
    try:
        found = message.model_dump(by_alias=True, exclude_unset=True, warnings="error")
        _check("message", found)
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    except InvalidMessage:
        raise
    except (AttributeError, ValueError, RecursionError) as error:
        kind = kind_of(error)
    raise InvalidMessage("message", f"it is no JSON-RPC message that can be stored: {kind}.")


def message_of(text: str) -> JSONRPCMessage | None:
    """The message of a stored text; None for text that another program made unreadable."""
    try:
        return _MESSAGES.validate_python(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _check(path: str, value: Any) -> None:
    kind = type(value)
    if kind in _PLAIN:
        return
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidMessage(path, f"the key {shown(key)} is not a string.")
            _check(f"{path}.{key}", item)
    elif kind is list:
        for index, item in enumerate(value):
            _check(f"{path}[{index}]", item)
    else:
        raise InvalidMessage(path, f"{kind.__name__} is not a JSON value.")


T = TypeVar("T")
log = logging.getLogger("persist")


class UnboundEventStore(PersistError, MCPError):  # noqa: N818  # named like the errors it stands among
    """An event store was used that nothing has bound to a session: it would send one client the messages of another."""

    def __init__(self) -> None:
        sentence = (
            "PersistEventStore does not know whose session this is, and two clients name their streams alike: use "
            "PersistSessionManager, wrap the ASGI application in SessionBinding, or give each transport for_session(session_id)."
        )
        MCPError.__init__(self, INTERNAL_ERROR, sentence)
        self.args = (sentence,)


class SessionEventStore(EventStore):
    """The messages of one session. Made by `PersistEventStore.for_session`; any number of them may have the same session."""

    def __init__(self, of: "PersistEventStore", session_id: object) -> None:
        if not isinstance(session_id, str) or not session_id:
            raise InvalidMessage("session_id", "expected text that is not empty.")
        self.session_id = session_id
        self._of = of
        self._key = escape_text(session_id, nul=True)

    def __repr__(self) -> str:
        return f"SessionEventStore({self.session_id!r})"

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store a message of a stream of this session; its id. None: a priming event, which is never replayed."""
        of = self._of
        if not isinstance(stream_id, str):
            raise InvalidMessage("stream_id", f"expected text, got {type(stream_id).__name__}.")
        stream, text = escape_text(stream_id, nul=True), None if message is None else text_of(message)

        def append(messages: ReplayMessages) -> str:
            return messages.append(self._key, stream, text, keep=of.max_events_per_stream, keep_for=of.max_age)

        with InvalidMessage.raised():
            return await self._run(append, writes=True)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what followed an event in its stream, in order, and return the stream's id.

        None for an id of another session, or one that retention deleted. Each page is read in a transaction of its own, which has
        ended when the callback is awaited. If there are several pages, messages stored during the sending are sent, too.
        """
        of = self._of
        if not callable(send_callback):
            raise InvalidMessage("send_callback", f"expected a function, got {type(send_callback).__name__}.")
        try:
            missed = await self._run(
                lambda messages: messages.after(self._key, last_event_id, limit=of.page_size, keep_for=of.max_age), writes=False
            )
        except InvalidValue:  # no id that was ever given
            return None
        if missed is None:
            return None
        page, stream = missed.messages, missed.stream
        while page:
            for stored in page:
                message = message_of(stored.message or "")
                if message is None:
                    log.warning("the event %s is left out: it is no JSON-RPC message", shown(stored.id))
                else:
                    await send_callback(EventMessage(message, stored.id))
            if not missed.more:  # everything was on the first page
                break
            page = await self._after(stream, page[-1].position)
        return unescape_text(stream)

    async def delete(self) -> bool:
        """Delete every event of this session; False if there is none."""
        with InvalidMessage.raised():
            return await self._of.bridge.call_async(lambda work: ReplaySessions(work).delete(self._key), writes=True)

    async def _after(self, stream: str, position: int) -> list[ReplayMessage]:
        limit = self._of.page_size
        return await self._run(lambda messages: messages.list(self._key, stream, position=position, limit=limit), writes=False)

    async def _run(self, verb: Callable[[ReplayMessages], T], *, writes: bool) -> T:
        return await self._of.bridge.call_async(lambda work: verb(ReplayMessages(work)), writes=writes)


class PersistEventStore(EventStore):
    """The events of an MCP server in a store: a client that lost its connection is sent the events that it missed.

    A stream of MCP is named by the number of a request, and every client begins at 1, so events are kept by session:
    `PersistSessionManager` gives each session its own store, and `SessionBinding` does the same for managers made elsewhere. Used
    without either, this raises UnboundEventStore.

    `max_events_per_stream` and `max_age` delete what is over them when the session is next written to; None keeps everything. The
    caller opens and closes the store: one per process, for any number of sessions.
    """

    def __init__(
        self,
        store: Store | AsyncStore,
        *,
        max_events_per_stream: int | None = 10_000,
        max_age: timedelta | None = timedelta(days=1),
        page_size: int = 100,
    ) -> None:
        if not isinstance(store, Store | AsyncStore):
            raise InvalidMessage("store", f"expected a Store or an AsyncStore, got {type(store).__name__}.")
        if max_events_per_stream is not None and (
            type(max_events_per_stream) is not int or not 1 <= max_events_per_stream < 2**63
        ):
            raise InvalidMessage("max_events_per_stream", "expected a whole number, 1 or more, of 64 bits, or None.")
        if max_age is not None and (type(max_age) is not timedelta or max_age < timedelta(milliseconds=1)):
            raise InvalidMessage("max_age", "expected a timedelta of a millisecond or more, or None.")
        if type(page_size) is not int or not 1 <= page_size <= 1000:
            raise InvalidMessage("page_size", "expected a whole number from 1 to 1000.")
        self.store = store
        self.max_events_per_stream, self.max_age, self.page_size = max_events_per_stream, max_age, page_size
        self.bridge = StoreBridge(store)

    def __repr__(self) -> str:
        return f"PersistEventStore({self.store!r})"

    def for_session(self, session_id: str) -> SessionEventStore:
        """The store of one session: give it to that session's transport alone."""
        return SessionEventStore(self, session_id)

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event of the session that the context is bound to. Raises UnboundEventStore."""
        return await self._bound().store_event(stream_id, message)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Replay events of the session that the context is bound to. Raises UnboundEventStore."""
        return await self._bound().replay_events_after(last_event_id, send_callback)

    def _bound(self) -> SessionEventStore:
        session_id = current_session.get()
        if session_id is None:
            raise UnboundEventStore
        return self.for_session(session_id)


class _BoundTransports(dict[str, StreamableHTTPServerTransport]):
    """The transports by session. A transport gets its session's event store when the manager registers it, before any request."""

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
