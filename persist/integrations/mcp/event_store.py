"""PersistEventStore and SessionEventStore: the MCP SDK's EventStore over a Store or an AsyncStore."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, JSONRPCMessage

from persist.db.values.escaping import escape_text, unescape_text
from persist.errors import InvalidValue, PersistError
from persist.integrations.mcp.binding import current_session
from persist.integrations.mcp.encoding import InvalidMessage, message_of, text_of
from persist.integrations.store_bridge import StoreBridge
from persist.quoting import shown
from persist.replay_streams.repository import ReplayMessages, ReplaySessions
from persist.replay_streams.schemas import ReplayMessage
from persist.store.async_store import AsyncStore
from persist.store.store import Store

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

        with _typed():
            return await self._run(append, writes=True)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what followed an event in its stream, in order, and return the stream's id.

        None for an id that is not of this session, or that retention deleted. Each page is read in a transaction of its own,
        which has ended when the callback is awaited. Where there are several, what is stored while they
        are sent is sent, too.
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
        with _typed():
            return await self._of.bridge.call_async(lambda work: ReplaySessions(work).delete(self._key), writes=True)

    async def _after(self, stream: str, position: int) -> list[ReplayMessage]:
        limit = self._of.page_size
        return await self._run(lambda messages: messages.list(self._key, stream, position=position, limit=limit), writes=False)

    async def _run(self, verb: Callable[[ReplayMessages], T], *, writes: bool) -> T:
        return await self._of.bridge.call_async(lambda work: verb(ReplayMessages(work)), writes=writes)


class PersistEventStore(EventStore):
    """The events of an MCP server in a store, so that clients that lost their connection are sent what they missed.

    A stream of MCP is named by the number of a request, and every client begins at 1, so events are kept by session:
    `PersistSessionManager` gives each session a store of its own, and `SessionBinding` does so for a manager that somebody else
    makes. Used without either, this raises UnboundEventStore.

    `max_events_per_stream` and `max_age` delete what is over them when the session is next written to; None keeps everything.
    The caller opens and closes the store: one per process, for any number of sessions.
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


@contextmanager
def _typed() -> Iterator[None]:
    """Let an InvalidValue be an InvalidMessage."""
    try:
        yield
    except InvalidValue as error:
        raise InvalidMessage(error.path, error.reason) from error
