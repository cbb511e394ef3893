"""The created_at that sorts a new message last in its session: from the newest message, and as SQL inside an INSERT."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, case, func, literal, select, type_coerce

from persist.chat.models import messages
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.values.clock import to_ms

_M = messages.c
_MILLISECOND = timedelta(milliseconds=1)

_newest_message = (
    select(_M.created_at.label("at"), func.max(_M.id).label("id"))
    .where(_M.session_id == param("session"))
    .group_by(_M.created_at)
    .order_by(_M.created_at.desc())
    .limit(1)
)
NEWEST_MESSAGE = Statement(_newest_message)
_newest = _newest_message.subquery()
_now = bindparam("at", type_=_M.created_at.type)
_new = bindparam("new", type_=_M.id.type)


def _later(at: Any) -> Any:
    return type_coerce(at, Int64()) + literal(1, Int64())


# What `place_after` returns, as SQL inside the INSERT: that saves a round trip to a server.
LAST_CREATED_AT = select(case((_newest.c.at < _now, _now), (_newest.c.id < _new, _newest.c.at), else_=_later(_newest.c.at)))
_before = messages.alias().c
AFTER_CREATED_AT = select(case((_before.id < _new, _before.created_at), else_=_later(_before.created_at))).where(
    _before.id == bindparam("previous", type_=_M.id.type)
)
"""As LAST_CREATED_AT, after a message that is known to be the last: no other one is looked at, however many share its instant."""


def place_after(row: Row | None, message_id: str, now: datetime) -> datetime:
    """The created_at that sorts a new message last, from the row of NEWEST_MESSAGE.

    `now`, or the newest message's instant if that is later; 1 ms more if the tie would be lost by the smaller id.
    """
    if row is None or row[0] < to_ms(now):
        return now
    newest: datetime = row[0]
    return newest if message_id > row[1] else newest + _MILLISECOND
