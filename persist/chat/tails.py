"""Folding: the text fed since a part was last written moves from its delta rows into the part, in one transaction.

A fold re-reads the deltas, appends them and deletes exactly those rows, so any process may fold any tail, twice as well as
once. It never changes `updated_at`, the instant of the last structural chunk.

Long text is folded by the database itself. Where the text holds escapes, which only we can read, it is folded here.

Everything is read before anything is written, and in a way that no stored value can make fail: a part or a piece that others
spoilt is UnreadableRow and stays as it is, with all of its tail. Whoever folds many leaves it out and says so.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, delete, exists, func, select, update
from sqlalchemy.sql.elements import ColumnElement

from persist.chat.models import deltas, parts
from persist.chat.statements import FOLD_PART, REWRITE_PART
from persist.chat.stored import grown_text, stored_part, stored_tail
from persist.db.hot import Hot, Statements, param
from persist.db.json import Frame, JsonText, around, decode
from persist.db.long_text import continued, escaped, framed
from persist.db.wire import readable, stored_text
from persist.errors import UnreadableRow

log = logging.getLogger("persist")

Told = Callable[[UnreadableRow], object]
"""Who is told of what is left out."""

_D, _P = deltas.c, parts.c
_id = param("row_id")
_last = bindparam("last", type_=_D.seq.type)
_upto = _D.part_id == _id, _D.seq <= _last
_READ = Hot(select(stored_text(_D.seq), stored_text(_D.delta)).where(_D.part_id == _id).order_by(_D.seq))
_SEEN = Hot(select(stored_text(_P.data_json)).where(_P.id == _id))
_DATA = Hot(select(stored_text(_P.data_json)).where(_P.id == _id).with_for_update())
_LOCK = Hot(select(_P.id).where(_P.id == _id).with_for_update())
_LAST = Hot(select(func.max(_D.seq)).where(_D.part_id == _id))
_DROP = Hot(delete(deltas).where(*_upto))
PART_ID = stored_text(_D.part_id)
"""What to select for `part_ids`."""
_ALL = Hot(select(PART_ID).distinct())
_OF_MESSAGE = Hot(select(PART_ID).join(parts, _P.id == _D.part_id).where(_P.message_id == _id).distinct())
_OF_SESSION = Hot(select(PART_ID).join(parts, _P.id == _D.part_id).where(_P.session_id == _id).distinct())


def _continued(whole: ColumnElement[Any]) -> ColumnElement[Any]:
    return continued(whole, _P.data_json, select(_D.delta).where(*_upto).order_by(_D.seq))


_plain = _P.id == _id, framed(_P.data_json), ~exists().where(*_upto, escaped(_D.delta))
_FOLD_LONG = Hot(update(parts).where(*_plain).values(data_json=_continued(_P.data_json)), silent=True)
_REWRITE_LONG = Hot(
    update(parts).where(*_plain).values(data_json=_continued(bindparam("data", type_=_P.data_json.type)), updated_at=param("at"))
)


def fold(db: Statements, part_id: str) -> bool:
    """Fold one part's tail; False if it has none. UnreadableRow, and nothing is written."""
    found = _whole(db, part_id, _DATA)
    if found is None:
        return False
    data, last = found
    db.run(FOLD_PART, row_id=part_id, data=data)
    db.run(_DROP, row_id=part_id, last=last)
    return True


def look(db: Statements, part_id: str) -> bool:
    """Whether there is a tail to fold; UnreadableRow where there is one that cannot be."""
    return _whole(db, part_id, _SEEN) is not None


def _whole(db: Statements, part_id: str, data: Hot) -> tuple[JsonText, int] | None:
    """What to store of a part and its tail, and the number of the last piece; None if it has no tail. UnreadableRow."""
    row = db.row(data, row_id=part_id)
    tail = db.rows(_READ, row_id=part_id)
    if row is None or not tail:
        return None
    text, last = stored_tail(part_id, tail)
    return grown_text(part_id, stored_part(part_id, row[0], db.wire), text), last


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
        stored = stored_part(part_id, row[0], db.wire)
        tail, _ = stored_tail(part_id, db.rows(_READ, row_id=part_id))
        grown = grown_text(part_id, {**part, "text": stored.get("text")}, tail)
        db.run(REWRITE_PART, row_id=part_id, data=grown, kind=part["type"], tool=None, at=at)
    db.run(_DROP, row_id=part_id, last=last)


def _hold(db: Statements, part_id: str) -> int | None:
    """The number of the last piece; nobody else folds before the transaction ends, whose next statements see what is there."""
    db.row(_LOCK, row_id=part_id)
    row = db.row(_LAST, row_id=part_id)
    return None if row is None else row[0]


def fold_message(db: Statements, message_id: str) -> None:
    """Fold every tail of one message. UnreadableRow names the first that cannot be."""
    for part_id in part_ids(db.rows(_OF_MESSAGE, row_id=message_id), tell):
        fold(db, part_id)


def fold_session(db: Statements, session_id: str) -> None:
    """Fold every tail of one session; what cannot be is told and left."""
    fold_each(db, part_ids(db.rows(_OF_SESSION, row_id=session_id), tell), tell)


def fold_all(db: Statements) -> None:
    """Fold every tail there is; what cannot be is told and left."""
    fold_each(db, part_ids(db.rows(_ALL), tell), tell)


def fold_each(db: Statements, part_ids: Iterable[str], told: Told) -> int:
    """Fold the tails of these parts; how many. Those that cannot be are told and left."""
    folded = 0
    for part_id in part_ids:
        try:
            folded += fold(db, part_id)
        except UnreadableRow as error:
            told(error)
    return folded


def part_ids(rows: Iterable[tuple[Any]], told: Told) -> Iterator[str]:
    """The ids in rows of PART_ID; those that are no text are told."""
    for (stored,) in rows:
        try:
            yield readable(stored)
        except ValueError:
            told(UnreadableRow("chat_part_deltas", (stored,), "part_id", "it is no text"))


def tell(error: UnreadableRow) -> None:
    """What a sweep says of what it leaves out."""
    log.warning("text that waits for a part is left as it is: %s", error)
