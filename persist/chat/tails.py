"""Folding: the text fed since a part was last written moves from its delta rows into the part, in one transaction.

A fold re-reads the deltas, appends them and deletes exactly those rows, so any process may fold any tail, twice as well as
once. It never changes `updated_at`, the instant of the last structural chunk.

Long text is folded by the database itself. Where the text holds escapes, which only we can read, it is folded here.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, delete, exists, func, select, update
from sqlalchemy.sql.elements import ColumnElement

from persist.chat.models import deltas, parts
from persist.chat.parts import Part, grow
from persist.chat.statements import FOLD_PART, REWRITE_PART
from persist.db.hot import Hot, Statements, param
from persist.db.json import Frame, JsonLimits, JsonText, around, decode, encode
from persist.db.long_text import continued, escaped, framed

_D, _P = deltas.c, parts.c
_id = param("row_id")
_last = bindparam("last", type_=_D.seq.type)
_upto = _D.part_id == _id, _D.seq <= _last
_READ = Hot(select(_D.seq, _D.delta).where(_D.part_id == _id).order_by(_D.seq))
_DATA = Hot(select(_P.data_json).where(_P.id == _id).with_for_update())
_LOCK = Hot(select(_P.id).where(_P.id == _id).with_for_update())
_LAST = Hot(select(func.max(_D.seq)).where(_D.part_id == _id))
_DROP = Hot(delete(deltas).where(*_upto))
_ALL = Hot(select(_D.part_id).distinct())
_OF_MESSAGE = Hot(select(_D.part_id).join(parts, _P.id == _D.part_id).where(_P.message_id == _id).distinct())
_OF_SESSION = Hot(select(_D.part_id).join(parts, _P.id == _D.part_id).where(_P.session_id == _id).distinct())


def _continued(whole: ColumnElement[Any]) -> ColumnElement[Any]:
    return continued(whole, _P.data_json, select(_D.delta).where(*_upto).order_by(_D.seq))


_plain = _P.id == _id, framed(_P.data_json), ~exists().where(*_upto, escaped(_D.delta))
_FOLD_LONG = Hot(update(parts).where(*_plain).values(data_json=_continued(_P.data_json)), silent=True)
_REWRITE_LONG = Hot(
    update(parts).where(*_plain).values(data_json=_continued(bindparam("data", type_=_P.data_json.type)), updated_at=param("at"))
)
_ANY_SIZE = JsonLimits(max_bytes=2**31)  # each piece was measured when it came


def fold(db: Statements, part_id: str) -> bool:
    """Fold one part's tail; False if it has none."""
    row = db.row(_DATA, row_id=part_id)
    tail = db.rows(_READ, row_id=part_id)
    if row is None or not tail:
        return False
    db.run(FOLD_PART, row_id=part_id, data=_grown(row[0], tail))
    db.run(_DROP, row_id=part_id, last=tail[-1][0])
    return True


def fold_long(db: Statements, part_id: str, frame: Frame) -> None:
    """Fold the tail of a part whose long text stays where it is, with that around it."""
    last = _hold(db, part_id)
    if last is None:
        return
    if db.run(_FOLD_LONG, row_id=part_id, last=last, head=frame.head, foot=frame.foot, new_foot=frame.foot) == 0:
        fold(db, part_id)
    else:
        db.run(_DROP, row_id=part_id, last=last)


def rewrite_long(db: Statements, part_id: str, frame: Frame, data: JsonText, at: datetime) -> None:
    """Fold it, and replace what is around its text: `data` is the part with an empty one."""
    part = decode(data)
    last, new = _hold(db, part_id) or 0, around(part, "text")
    written = 0
    if new.head == frame.head:
        values = {"data": data, "at": at, "head": frame.head, "foot": frame.foot, "new_foot": new.foot}
        written = db.run(_REWRITE_LONG, row_id=part_id, last=last, **values)
    if not written and (row := db.row(_DATA, row_id=part_id)) is not None:
        whole = _grown({**part, "text": row[0].get("text", "")}, db.rows(_READ, row_id=part_id))
        db.run(REWRITE_PART, row_id=part_id, data=whole, kind=part["type"], tool=None, at=at)
    db.run(_DROP, row_id=part_id, last=last)


def _hold(db: Statements, part_id: str) -> int | None:
    """The number of the last piece; nobody else folds before the transaction ends, whose next statements see what is there."""
    db.row(_LOCK, row_id=part_id)
    row = db.row(_LAST, row_id=part_id)
    return None if row is None else row[0]


def _grown(data: Part, tail: list[tuple[int, str]]) -> JsonText:
    return encode(grow(data, "".join([piece for _, piece in tail])), limits=_ANY_SIZE)


def fold_message(db: Statements, message_id: str) -> None:
    """Fold every tail of one message."""
    for (part_id,) in db.rows(_OF_MESSAGE, row_id=message_id):
        fold(db, part_id)


def fold_session(db: Statements, session_id: str) -> None:
    """Fold every tail of one session."""
    for (part_id,) in db.rows(_OF_SESSION, row_id=session_id):
        fold(db, part_id)


def fold_all(db: Statements) -> None:
    """Fold every tail there is."""
    for (part_id,) in db.rows(_ALL):
        fold(db, part_id)
