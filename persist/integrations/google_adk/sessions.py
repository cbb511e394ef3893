"""PersistSessionService: Google ADK's session service over a Store or an AsyncStore."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session

from persist.db.values.arguments import check_kind
from persist.errors import Conflict, NotFound
from persist.framework_state.app_sessions.schemas import Appended, InHand, LoadedSession, NewEvent, StateChange
from persist.framework_state.app_sessions.sessions import AppSessions
from persist.integrations.google_adk import encoding
from persist.integrations.store_bridge import StoreBridge
from persist.store.async_store import AsyncStore
from persist.store.store import Store

# One append at a time to a session object: parallel branches of an agent share it, and each needs the one before's revision.

_LOCKS = 256


@dataclass(slots=True)
class _Turn:
    """The lock of one session object on one event loop, and how many hold it or wait for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Turns:
    """Turns of the calls that append to one session object: in their order on an event loop, and one by one between threads."""

    def __init__(self) -> None:
        self._turns: dict[tuple[int, int], _Turn] = {}
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    @asynccontextmanager
    async def of(self, session: object) -> AsyncIterator[None]:
        """Wait for a turn on this event loop. On another one than asyncio's the lock between threads has to do."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            yield
            return
        key = (id(loop), id(session))
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]

    def lock_of(self, session: object) -> threading.Lock:
        """The lock between threads. Sessions that share a lock merely wait for each other."""
        return self._locks[id(session) // 16 % _LOCKS]


class PersistSessionService(BaseSessionService):
    """Keeps sessions in a store: `Runner(..., session_service=PersistSessionService(store))`.

    Every call is one transaction; a cancelled one is done either completely or not at all. The caller opens and closes the
    store: one per process. Of two writers who have read the same session, the second one gets a SessionStale (a
    StaleSessionError of the framework); entries of the state that sessions share are merged key by key.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        with encoding.InvalidArgument.raised():
            self._bridge = StoreBridge(store)
        self._turns = Turns()

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Create a session. Raises SessionExists if the user has one with that id; a blank id becomes a new one."""
        given = None if session_id is None else _stripped(session_id) or None
        with encoding.InvalidArgument.raised():
            change = encoding.change_of(state)
            try:
                made = await self._bridge.call_async(
                    lambda work: AppSessions(work).create(app_name, user_id, given, state=change), writes=True
                )
            except Conflict as error:
                raise encoding.SessionExists(str(given)) from error
        return _session(made)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """The session with the events that `config` names, in the order of appending; None if there is none."""
        if config is not None and not isinstance(config, GetSessionConfig):
            raise encoding.InvalidArgument("config", f"expected a GetSessionConfig, got {type(config).__name__}.")
        window, named = config or GetSessionConfig(), _stripped(session_id)

        def read() -> Session | None:
            found = self._bridge.call(
                lambda work: AppSessions(work).load(
                    app_name, user_id, named, recent=window.num_recent_events, since=window.after_timestamp
                ),
                writes=False,
            )
            return None if found is None else _session(found)

        with encoding.InvalidArgument.raised():
            return await self._bridge.in_worker(read, writes=False)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of a user, or of all users, with their state and without events; the one used last comes last."""
        with encoding.InvalidArgument.raised():
            found = await self._bridge.call_async(lambda work: AppSessions(work).of_app(app_name, user_id), writes=False)
        return ListSessionsResponse(sessions=[_session(one) for one in found])

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session, if it exists, with its events and its own state."""
        with encoding.InvalidArgument.raised():
            await self._bridge.call_async(
                lambda work: AppSessions(work).delete(app_name, user_id, _stripped(session_id)), writes=True
            )

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """The state that all sessions of the user share, without the prefix `user:`."""
        with encoding.InvalidArgument.raised():
            found = await self._bridge.call_async(lambda work: AppSessions(work).user_state(app_name, user_id), writes=False)
        return encoding.values_of(found)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event and its change of the state, then apply both to the session object.

        Raises SessionStale, SessionMissing or InvalidArgument, and then changes neither the store, nor the object, nor the event.
        An event that is stored already, because its answer was lost, is not stored again.
        """
        with encoding.InvalidArgument.raised():
            check_kind("session", session, Session)
            check_kind("session.state", session.state, dict)
            check_kind("session.events", session.events, list)
            if check_kind("event", event, Event).partial:
                return event
            new, change = encoding.stored_event(event)
            async with self._turns.of(session):
                return await self._bridge.in_worker(lambda: self._append(session, event, new, change), writes=True)

    def _append(self, session: Session, event: Event, new: NewEvent, change: StateChange) -> Event:
        with self._turns.lock_of(session):
            expected = session._storage_update_marker
            in_hand = InHand({one.id for one in session.events}, session.last_update_time) if expected is None else expected
            try:
                appended = self._bridge.call(
                    lambda work: AppSessions(work).append(
                        session.app_name, session.user_id, session.id, new, state=change, expected=in_hand
                    ),
                    writes=True,
                )
            except NotFound as error:
                raise encoding.SessionMissing(session.id) from error
            except Conflict as error:
                raise encoding.SessionStale(session.id) from error
            if _is_news(appended, expected):
                self._apply_temp_state(session, event)
                event = self._commit_event_to_session(session, self._trim_temp_delta_state(event))
                session.last_update_time = appended.session.update_time
                session._storage_update_marker = appended.session.marker
        return event


def _is_news(appended: Appended, expected: str | None) -> bool:
    """Whether a stored event is to be applied to the session object, which then is up to date."""
    if not appended.was_there:
        return True
    before = appended.session.model_copy(update={"revision": appended.session.revision - 1})
    return appended.is_newest and expected == before.marker


def _stripped(session_id: object) -> str:
    """The id without blanks around it. Raises InvalidArgument for anything but text."""
    if not isinstance(session_id, str):
        raise encoding.InvalidArgument("session_id", f"expected text, got {type(session_id).__name__}.")
    return session_id.strip()


def _session(loaded: LoadedSession) -> Session:
    stored = loaded.session
    events = [encoding.model_of(Event, event.data, f"event {event.id} of session {stored.session_id}") for event in loaded.events]
    session = Session(
        id=stored.session_id,
        app_name=stored.app_name,
        user_id=stored.user_id,
        state=encoding.state_of(loaded.state),
        events=events,
        last_update_time=stored.update_time,
    )
    session._storage_update_marker = stored.marker
    return session
