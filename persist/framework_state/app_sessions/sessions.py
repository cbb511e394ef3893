"""`tx.app_sessions.sessions`: sessions of an application's users, their events, and state in three scopes."""

import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Table, bindparam, delete, exists, select, update

from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.upsert import insert_missing, merge
from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import UNBOUNDED, optional_count
from persist.db.values.frozen import construct
from persist.db.values.pages import Page
from persist.errors import Conflict, named
from persist.framework_state.app_sessions import models, schemas
from persist.framework_state.app_sessions.schemas import (
    Appended,
    AppSession,
    AppSessionEvent,
    Entries,
    InHand,
    LoadedSession,
    Names,
    NewEvent,
    StateChange,
)

_APP_STATE = models.app_state.c
_U = models.user_state.c


def _setting(table: Table) -> Statement:
    return Statement(merge(table, *(column.name for column in table.primary_key.columns), value="new"))


_SET_APP, _SET_USER, _SET_SESSION = map(_setting, (models.app_state, models.user_state, models.session_state))
OF_APP = Statement(
    select(_APP_STATE.key, _APP_STATE.value)
    .where(_APP_STATE.app_name == param("app_name"))
    .order_by(_APP_STATE.position, _APP_STATE.key)
)
OF_USER = Statement(
    select(_U.key, _U.value).where(_U.app_name == param("app_name"), _U.user_id == param("user_id")).order_by(_U.position, _U.key)
)


def set_entries(work: UnitOfWork, batch: Batch, change: StateChange, *, app_name: str, user_id: str, session: str) -> None:
    """Set the entries of a change, in the order of keys, so that writers cannot deadlock; entries under other keys stay."""
    user = {"app_name": app_name, "user_id": user_id}
    batch.run_many(_SET_APP, _rows(work, change.app, {"app_name": app_name}))
    batch.run_many(_SET_USER, _rows(work, change.user, user))
    batch.run_many(_SET_SESSION, _rows(work, change.session, {"app_session_id": session}))


def _rows(work: UnitOfWork, entries: Entries, owner: dict[str, str]) -> list[dict[str, Any]]:
    rows = [{**owner, "key": key, "value": text, "position": next_position(work)} for key, text in entries.items()]
    return sorted(rows, key=lambda row: row["key"])


def next_position(work: UnitOfWork) -> int:
    """A number greater than every one that this process has made before: what was added later comes later."""
    return int(work.runtime.ids.mint("pos")[4:18], 16)


def entries_of(found: Pending[list[Row]]) -> Entries:
    """The entries that a batch has read, in their order."""
    return as_entries(found.result)


def as_entries(rows: Iterable[Row]) -> Entries:
    """The entries of rows of a key and a value."""
    return dict(iter(rows))


STALE = "app_user_sessions.revision"
"""The `constraint` of the Conflict that an outdated writer gets."""
_SESSIONS = models.sessions.c
_E = models.events.c
SESSION = Values(AppSession, models.sessions)
OF_NAMES = (
    _SESSIONS.app_name == param("app_name"),
    _SESSIONS.user_id == param("user_id"),
    _SESSIONS.session_id == param("session_id"),
)
ROW_ID: ColumnElement[Any] = select(_SESSIONS.id).where(*OF_NAMES).scalar_subquery()
LOCK = Statement(select(*SESSION.columns).where(*OF_NAMES).with_for_update())
_SAME_ID = Statement(
    select(_E.position, _E.data).where(_E.app_session_id == ROW_ID, _E.id == param("event_id")).order_by(_E.position.desc())
)
_NEWEST_EVENT = Statement(select(_E.id).where(_E.app_session_id == ROW_ID).order_by(_E.position.desc()).limit(1))
_ADD = Statement(models.events.insert())
_TOUCH = Statement(
    update(models.sessions)
    .where(_SESSIONS.id == param("row_id"))
    .values(
        revision=bindparam("new_revision", type_=_SESSIONS.revision.type),
        update_time=bindparam("at", type_=_SESSIONS.update_time.type),
        updated_at=bindparam("now", type_=_SESSIONS.updated_at.type),
    )
)


def append(work: UnitOfWork, key: Names, event: NewEvent, change: StateChange, expected: str | InHand | None) -> Appended:
    """Append a checked event and merge its change of the state. See `AppSessions.append`."""
    with work.batch() as batch:
        locked = batch.row(LOCK, **key)
        same = batch.rows(_SAME_ID, **key, event_id=event.id)
        newest = batch.row(_NEWEST_EVENT, **key)
    session = SESSION(locked.must_exist("session", key["session_id"]))
    for position, data in same.result:
        if data == event.data:
            return Appended(session, was_there=True, is_newest=position == session.revision)
    if not _is_current(session, newest.result, expected):
        raise Conflict(
            f"The session {named(session.session_id)} was changed by another writer since it was read; read it again.",
            constraint=STALE,
        )
    revision, now = session.revision + 1, work.now()
    with work.batch(last=True) as batch:
        set_entries(work, batch, change, app_name=session.app_name, user_id=session.user_id, session=session.id)
        batch.run(_ADD, app_session_id=session.id, position=revision, **asdict(event))
        batch.run(_TOUCH, row_id=session.id, new_revision=revision, at=event.timestamp, now=now)
    written = {"revision": revision, "update_time": event.timestamp, "updated_at": now}
    return Appended(construct(AppSession, session.__dict__ | written), was_there=False, is_newest=True)


def _is_current(session: AppSession, newest: Row | None, expected: str | InHand | None) -> bool:
    """Whether nobody has written to the session since the writer read it."""
    if expected is None:
        return True
    if not isinstance(expected, InHand):
        return expected == session.marker
    if newest is None:
        return not expected.event_ids
    if expected.event_ids:
        return newest[0] in expected.event_ids
    return expected.update_time >= session.update_time


List = list
_T = models.session_state.c
_ARTIFACTS = models.artifacts.c
_V = models.artifact_versions.c
_EVENT = Values(AppSessionEvent, models.events)
_NEWEST = Keyset("app_sessions.sessions", SESSION, (_SESSIONS.updated_at, _SESSIONS.id))
_GET = Statement(select(*SESSION.columns).where(_SESSIONS.id == param("row_id")))
_NAMED = Statement(select(*SESSION.columns).where(*OF_NAMES))
_CREATE = Statement(insert_missing(models.sessions, "app_name", "user_id", "session_id"))
_OF_SESSION = Statement(select(_T.key, _T.value).where(_T.app_session_id == ROW_ID).order_by(_T.position, _T.key))
_DELETE_BELOW = [Statement(delete(table).where(table.c.app_session_id == ROW_ID)) for table in models.BELOW]
# what another transaction makes in the very moment of a deletion stays: it comes after
_is_empty = tuple(~exists().where(table.c.app_session_id == _SESSIONS.id) for table in models.BELOW)
_DELETE = Statement(delete(models.sessions).where(*OF_NAMES, *_is_empty))
_of_user = (_SESSIONS.app_name == param("app_name"), _SESSIONS.user_id == param("user_id"))
_LOCK_USER = Statement(select(_SESSIONS.id).where(*_of_user).order_by(_SESSIONS.id).with_for_update())
_artifacts_of_user = (_ARTIFACTS.app_name == param("app_name"), _ARTIFACTS.user_id == param("user_id"))
_LOCK_ARTIFACTS = Statement(select(_ARTIFACTS.id).where(*_artifacts_of_user).order_by(_ARTIFACTS.id).with_for_update())
_user_sessions = select(_SESSIONS.id).where(*_of_user)
_user_artifacts = select(_ARTIFACTS.id).where(*_artifacts_of_user)
_ERASE = [
    *(Statement(delete(table).where(table.c.app_session_id.in_(_user_sessions))) for table in models.BELOW),
    Statement(delete(models.artifact_blobs).where(models.artifact_blobs.c.artifact_id.in_(_user_artifacts))),
    Statement(delete(models.artifact_versions).where(_V.artifact_id.in_(_user_artifacts))),
    Statement(delete(models.sessions).where(*_of_user, *_is_empty)),
    Statement(delete(models.artifacts).where(*_artifacts_of_user, ~exists().where(_V.artifact_id == _ARTIFACTS.id))),
    *(
        Statement(delete(table).where(table.c.app_name == param("app_name"), table.c.user_id == param("user_id")))
        for table in (models.user_state, models.memories)
    ),
]


@cache
def _events(after: bool) -> Statement:
    query = select(*_EVENT.columns).where(_E.app_session_id == ROW_ID)
    if after:
        query = query.where(_E.timestamp >= bindparam("since", type_=_E.timestamp.type))
    return Statement(query.order_by(_E.position.desc()).limit(LIMIT))


@cache
def _of_app(user: bool) -> tuple[Statement, Statement, Statement]:
    of_app = (_SESSIONS.app_name == param("app_name"), *([_SESSIONS.user_id == param("user_id")] if user else []))
    of_users = (_U.app_name == param("app_name"), *([_U.user_id == param("user_id")] if user else []))
    found = (
        select(*SESSION.columns)
        .where(*of_app)
        .order_by(_SESSIONS.updated_at, _SESSIONS.update_time, _SESSIONS.user_id, _SESSIONS.session_id)
    )
    states = select(_T.app_session_id, _T.key, _T.value).join(models.sessions, _SESSIONS.id == _T.app_session_id).where(*of_app)
    users = select(_U.user_id, _U.key, _U.value).where(*of_users)
    return (Statement(found), Statement(states.order_by(_T.position, _T.key)), Statement(users.order_by(_U.position, _U.key)))


class AppSessions(Repository[F]):
    """`tx.app_sessions.sessions`, with state in three scopes. States' and events' values are JSON text, kept exactly as given."""

    @writes
    def create(
        self, app_name: str, user_id: str, session_id: str | None = None, *, state: StateChange | None = None
    ) -> LoadedSession:
        """Create a session, and set entries of its state. Raises Conflict if the id is taken, and then sets nothing.

        `session_id` None: a new id. The result has the state of all three scopes.
        """
        work = self._work
        key = schemas.names(work, app_name=app_name, user_id=user_id)
        key["session_id"] = str(uuid.uuid4()) if session_id is None else work.label("session_id", session_id)
        change = schemas.change(work, state)
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
        key = schemas.names(work, app_name=app_name, user_id=user_id, session_id=session_id)
        change = schemas.change(work, state)
        return append(work, key, schemas.event(work, event), change, schemas.expected(work, expected))

    @reads
    def load(
        self, app_name: str, user_id: str, session_id: str, *, recent: int | None = None, since: float | None = None
    ) -> LoadedSession | None:
        """A session with its state and events, in the order in which they were appended; None if unknown.

        `recent`: only so many of the last events. `since`: only events with this timestamp or a later one. Timestamps order
        nothing: they come from the clocks of the hosts that made the events.
        """
        work = self._work
        key = schemas.names(work, app_name=app_name, user_id=user_id, session_id=session_id)
        limit = optional_count("recent", recent)
        window = {} if since is None else {"since": schemas.seconds("since", since)}
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
        key = schemas.names(work, app_name=app_name, **({} if user_id is None else {"user_id": user_id}))
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
        key = schemas.names(self._work, app_name=app_name, user_id=user_id)
        return as_entries(self._work.rows(OF_USER, **key))

    @writes
    def delete(self, app_name: str, user_id: str, session_id: str) -> bool:
        """Delete a session with its events and its own state; False for an unknown one."""
        key = schemas.names(self._work, app_name=app_name, user_id=user_id, session_id=session_id)
        with self._work.batch(last=True) as batch:
            batch.lock(LOCK, **key)  # an event that another writer is appending is there or waits
            for prepared in _DELETE_BELOW:
                batch.run(prepared, **key)
            deleted = batch.run(_DELETE, **key)
        return deleted.result == 1

    @writes
    def erase_user(self, app_name: str, user_id: str) -> int:
        """Delete everything of a user: sessions, state, artifacts and memories; the number of rows."""
        key = schemas.names(self._work, app_name=app_name, user_id=user_id)
        with self._work.batch(last=True) as batch:
            batch.lock(_LOCK_USER, **key)  # what another writer appends or saves is there or waits
            batch.lock(_LOCK_ARTIFACTS, **key)
            erased = [batch.run(prepared, **key) for prepared in _ERASE]
        return sum(pending.result for pending in erased)


def _oldest_first(listed: Pending[List[Row]]) -> List[AppSessionEvent]:
    return [_EVENT(row) for row in reversed(listed.result)]


def _grouped(found: Pending[List[Row]]) -> defaultdict[str, dict[str, str]]:
    grouped: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for owner, key, text in found.result:
        grouped[owner][key] = text
    return grouped
