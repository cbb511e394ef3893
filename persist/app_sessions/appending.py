"""Appending an event to a session: one writer at a time, and none that has missed what another one wrote."""

from typing import Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.sql.elements import ColumnElement

from persist.app_sessions.models import events, sessions
from persist.app_sessions.schemas import Appended, AppSession, InHand, NewEvent, StateChange
from persist.app_sessions.scopes import set_entries
from persist.app_sessions.validation import Names
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.frozen import construct
from persist.errors import Conflict, NotFound
from persist.quoting import named

STALE = "app_user_sessions.revision"
"""The `constraint` of the Conflict that an outdated writer gets."""

_S, _E = sessions.c, events.c
SESSION = Values(AppSession, sessions)
OF_NAMES = (_S.app_name == param("app_name"), _S.user_id == param("user_id"), _S.session_id == param("session_id"))
ROW_ID: ColumnElement[Any] = select(_S.id).where(*OF_NAMES).scalar_subquery()

LOCK = Statement(select(*SESSION.columns).where(*OF_NAMES).with_for_update())
_SAME_ID = Statement(
    select(_E.position, _E.data).where(_E.app_session_id == ROW_ID, _E.id == param("event_id")).order_by(_E.position.desc())
)
_NEWEST = Statement(select(_E.id).where(_E.app_session_id == ROW_ID).order_by(_E.position.desc()).limit(1))
_ADD = Statement(events.insert())
_TOUCH = Statement(
    update(sessions)
    .where(_S.id == param("row_id"))
    .values(
        revision=bindparam("new_revision", type_=_S.revision.type),
        update_time=bindparam("at", type_=_S.update_time.type),
        updated_at=bindparam("now", type_=_S.updated_at.type),
    )
)


def append(work: UnitOfWork, key: Names, event: NewEvent, change: StateChange, expected: str | InHand | None) -> Appended:
    """Append a checked event and merge its change of the state. See `AppSessions.append`."""
    with work.batch() as batch:
        locked = batch.row(LOCK, **key)
        same = batch.rows(_SAME_ID, **key, event_id=event.id)
        newest = batch.row(_NEWEST, **key)
    if locked.result is None:
        raise NotFound("session", key["session_id"])
    session = SESSION(locked.result)
    for position, data in same.result:
        if data == event.data:
            return Appended(session, was_there=True, is_newest=position == session.revision)
    if not _is_current(session, newest.result, expected):
        raise Conflict(
            f"The session {named(session.session_id)} was changed by another writer since it was read; read it again.",
            constraint=STALE,
        )
    revision, now = session.revision + 1, work.now()
    row = {
        "app_session_id": session.id,
        "position": revision,
        "id": event.id,
        "timestamp": event.timestamp,
        "author": event.author,
        "invocation_id": event.invocation_id,
        "data": event.data,
    }
    with work.batch(last=True) as batch:
        set_entries(work, batch, change, app_name=session.app_name, user_id=session.user_id, session=session.id)
        batch.run(_ADD, **row)
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
