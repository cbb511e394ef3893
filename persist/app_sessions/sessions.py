"""`tx.app_sessions.sessions`: sessions of an application's users, their events, and state in three scopes."""

import uuid
from collections import defaultdict
from functools import cache

from sqlalchemy import bindparam, delete, exists, select

from persist.app_sessions import validation as validation
from persist.app_sessions.appending import LOCK, OF_NAMES, ROW_ID, SESSION, append
from persist.app_sessions.models import (
    BELOW,
    artifact_blobs,
    artifact_versions,
    artifacts,
    events,
    memories,
    session_state,
    sessions,
    user_state,
)
from persist.app_sessions.schemas import (
    Appended,
    AppSession,
    AppSessionEvent,
    Entries,
    InHand,
    LoadedSession,
    NewEvent,
    StateChange,
)
from persist.app_sessions.scopes import OF_APP, OF_USER, as_entries, entries_of, set_entries
from persist.db.changes.batch import Pending
from persist.db.expressions.upsert import insert_missing
from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import optional_count
from persist.db.values.counts import UNBOUNDED
from persist.db.values.frozen import construct
from persist.db.values.pages import Page
from persist.errors import Conflict
from persist.quoting import named

List = list
_S, _E, _T, _U, _A, _V, _M = sessions.c, events.c, session_state.c, user_state.c, artifacts.c, artifact_versions.c, memories.c
_EVENT = Values(AppSessionEvent, events)
_NEWEST = Keyset("app_sessions.sessions", SESSION, (_S.updated_at, _S.id))

_GET = Statement(select(*SESSION.columns).where(_S.id == param("row_id")))
_NAMED = Statement(select(*SESSION.columns).where(*OF_NAMES))
_CREATE = Statement(insert_missing(sessions, "app_name", "user_id", "session_id"))
_OF_SESSION = Statement(select(_T.key, _T.value).where(_T.app_session_id == ROW_ID).order_by(_T.position, _T.key))
_DELETE_BELOW = [Statement(delete(table).where(table.c.app_session_id == ROW_ID)) for table in BELOW]
# what another transaction makes in the very moment of a deletion stays: it comes after
_is_empty = tuple(~exists().where(table.c.app_session_id == _S.id) for table in BELOW)
_DELETE = Statement(delete(sessions).where(*OF_NAMES, *_is_empty))

_of_user = (_S.app_name == param("app_name"), _S.user_id == param("user_id"))
_LOCK_USER = Statement(select(_S.id).where(*_of_user).order_by(_S.id).with_for_update())
_artifacts_of_user = (_A.app_name == param("app_name"), _A.user_id == param("user_id"))
_LOCK_ARTIFACTS = Statement(select(_A.id).where(*_artifacts_of_user).order_by(_A.id).with_for_update())
_user_sessions = select(_S.id).where(*_of_user)
_user_artifacts = select(_A.id).where(*_artifacts_of_user)
_ERASE = [
    *(Statement(delete(table).where(table.c.app_session_id.in_(_user_sessions))) for table in BELOW),
    Statement(delete(artifact_blobs).where(artifact_blobs.c.artifact_id.in_(_user_artifacts))),
    Statement(delete(artifact_versions).where(_V.artifact_id.in_(_user_artifacts))),
    Statement(delete(sessions).where(*_of_user, *_is_empty)),
    Statement(delete(artifacts).where(*_artifacts_of_user, ~exists().where(_V.artifact_id == _A.id))),
    *(
        Statement(delete(table).where(table.c.app_name == param("app_name"), table.c.user_id == param("user_id")))
        for table in (user_state, memories)
    ),
]


@cache
def _events(after: bool) -> Statement:
    """The SELECT of a session's events, those appended last first, with or without the earliest timestamp."""
    query = select(*_EVENT.columns).where(_E.app_session_id == ROW_ID)
    if after:
        query = query.where(_E.timestamp >= bindparam("since", type_=_E.timestamp.type))
    return Statement(query.order_by(_E.position.desc()).limit(LIMIT))


@cache
def _of_app(user: bool) -> tuple[Statement, Statement, Statement]:
    """The SELECTs of an application's sessions, of their states, and of its users' states; or of one user's."""
    of_app = (_S.app_name == param("app_name"), *([_S.user_id == param("user_id")] if user else []))
    of_users = (_U.app_name == param("app_name"), *([_U.user_id == param("user_id")] if user else []))
    found = select(*SESSION.columns).where(*of_app).order_by(_S.updated_at, _S.update_time, _S.user_id, _S.session_id)
    states = select(_T.app_session_id, _T.key, _T.value).join(sessions, _S.id == _T.app_session_id).where(*of_app)
    users = select(_U.user_id, _U.key, _U.value).where(*of_users)
    return (
        Statement(found),
        Statement(states.order_by(_T.position, _T.key)),
        Statement(users.order_by(_U.position, _U.key)),
    )


class AppSessions(Repository[F]):
    """`tx.app_sessions.sessions`. Values of states and events are JSON text, which is kept exactly as it was given."""

    @writes
    def create(
        self, app_name: str, user_id: str, session_id: str | None = None, *, state: StateChange | None = None
    ) -> LoadedSession:
        """Create a session, and set entries of its state. Raises Conflict if the id is taken, and then sets nothing.

        `session_id` None: a new id. The result has the state of all three scopes.
        """
        work = self._work
        key = validation.names(work, app_name=app_name, user_id=user_id)
        key["session_id"] = str(uuid.uuid4()) if session_id is None else work.label("session_id", session_id)
        change = validation.change(work, state)
        now = work.now()
        times = {"created_at": now, "updated_at": now, "update_time": now.timestamp()}
        row_id = work.runtime.ids.mint("aps")
        row = {"id": row_id, **key, "revision": 0, **times}
        with work.batch() as batch:
            made = batch.run(_CREATE, **row)
        if not made.result:
            reason = f"The user {named(user_id)} has a session {named(key['session_id'])} already."
            raise Conflict(reason, constraint="uq_app_user_sessions_app_name_user_id_session_id")
        with work.batch(last=True) as batch:
            set_entries(work, batch, change, app_name=app_name, user_id=user_id, session=row_id)
            app = batch.rows(OF_APP, app_name=app_name)
            user = batch.rows(OF_USER, app_name=app_name, user_id=user_id)
        state = StateChange(app=entries_of(app), user=entries_of(user), session=dict(change.session))
        return LoadedSession(construct(AppSession, {name: row[name] for name in SESSION.fields}), [], state)

    @writes
    def append(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        event: NewEvent,
        *,
        state: StateChange | None = None,
        expected: str | InHand | None = None,
    ) -> Appended:
        """Append an event and set entries of the state, key by key. An event that is stored already is not stored again.

        `expected`: the session's `marker` as the writer has read it, or without one what it has in hand. Raises Conflict, and
        writes nothing, if another writer has appended since; and NotFound if there is no such session. None: append anyway.
        """
        work = self._work
        key = validation.names(work, app_name=app_name, user_id=user_id, session_id=session_id)
        change = validation.change(work, state)
        return append(work, key, validation.event(work, event), change, validation.expected(work, expected))

    @reads
    def load(
        self, app_name: str, user_id: str, session_id: str, *, recent: int | None = None, since: float | None = None
    ) -> LoadedSession | None:
        """A session with its state and events, in the order in which they were appended; None if unknown.

        `recent`: only so many of the last events. `since`: only events with this timestamp or a later one. Timestamps order
        nothing: they come from the clocks of the hosts that made the events.
        """
        work = self._work
        key = validation.names(work, app_name=app_name, user_id=user_id, session_id=session_id)
        limit = optional_count("recent", recent)
        window = {} if since is None else {"since": validation.seconds("since", since)}
        with work.batch() as batch:
            found = batch.row(_NAMED, **key)
            listed = None
            if limit != 0:
                listed = batch.rows(_events(bool(window)), **key, **window, limit=UNBOUNDED if limit is None else limit)
            own = batch.rows(_OF_SESSION, **key)
            app = batch.rows(OF_APP, app_name=app_name)
            user = batch.rows(OF_USER, app_name=app_name, user_id=user_id)
        if found.result is None:
            return None
        state = StateChange(app=entries_of(app), user=entries_of(user), session=entries_of(own))
        return LoadedSession(SESSION(found.result), [] if listed is None else _oldest_first(listed), state)

    @reads
    def of_app(self, app_name: str, user_id: str | None = None) -> List[LoadedSession]:
        """An application's sessions, or those of one user, without events. The one used last comes last."""
        work = self._work
        key = validation.names(work, app_name=app_name, **({} if user_id is None else {"user_id": user_id}))
        of_sessions, of_states, of_users = _of_app("user_id" in key)
        with work.batch() as batch:
            found = batch.rows(of_sessions, **key)
            own = batch.rows(of_states, **key)
            users = batch.rows(of_users, **key)
            app = batch.rows(OF_APP, app_name=app_name)
        shared, by_user, by_session = entries_of(app), _grouped(users), _grouped(own)
        return [
            LoadedSession(one, [], StateChange(app=shared, user=by_user[one.user_id], session=by_session[one.id]))
            for one in map(SESSION, found.result)
        ]

    @reads
    def list(self, *, limit: int = 20, after: str | None = None) -> Page[AppSession]:
        """Sessions of all applications, the one used last first. Pass a page's `cursor` as `after` for the next page."""
        return _NEWEST.page(self._work, limit, after)

    @reads
    def get(self, id: str) -> AppSession:
        """The session whose row has this id. Raises NotFound."""
        return SESSION.found(self._work.row(_GET, row_id=self._work.label("id", id)), "session", id)

    @reads
    def user_state(self, app_name: str, user_id: str) -> Entries:
        """The state that all sessions of a user share."""
        key = validation.names(self._work, app_name=app_name, user_id=user_id)
        return as_entries(self._work.rows(OF_USER, **key))

    @writes
    def delete(self, app_name: str, user_id: str, session_id: str) -> bool:
        """Delete a session with its events and its own state; False for an unknown one."""
        key = validation.names(self._work, app_name=app_name, user_id=user_id, session_id=session_id)
        with self._work.batch(last=True) as batch:
            batch.lock(LOCK, **key)  # an event that another writer is appending is there or waits
            for prepared in _DELETE_BELOW:
                batch.run(prepared, **key)
            deleted = batch.run(_DELETE, **key)
        return deleted.result == 1

    @writes
    def erase_user(self, app_name: str, user_id: str) -> int:
        """Delete everything of a user: sessions, state, artifacts and memories; the number of rows."""
        key = validation.names(self._work, app_name=app_name, user_id=user_id)
        with self._work.batch(last=True) as batch:
            batch.lock(_LOCK_USER, **key)  # what another writer appends or saves is there or waits
            batch.lock(_LOCK_ARTIFACTS, **key)
            erased = [batch.run(prepared, **key) for prepared in _ERASE]
        return sum(pending.result for pending in erased)


def _oldest_first(listed: Pending[List[Row]]) -> List[AppSessionEvent]:
    return [_EVENT(row) for row in reversed(listed.result)]


def _grouped(found: Pending[List[Row]]) -> defaultdict[str, dict[str, str]]:
    """Entries by their owner."""
    grouped: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for owner, key, text in found.result:
        grouped[owner][key] = text
    return grouped
