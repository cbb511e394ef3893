"""Folding: the text fed since a part was last written moves from its delta rows into the part, in one transaction.

A fold re-reads the deltas, appends them and deletes exactly those rows, so any process may fold any tail, twice as well as
once. It never changes `updated_at`, the instant of the last structural chunk.
"""

from sqlalchemy import delete, select

from persist.chat.models import deltas, parts
from persist.chat.parts import grow
from persist.chat.statements import FOLD_PART
from persist.db.hot import Hot, Statements, param
from persist.db.json import encode

_D, _P = deltas.c, parts.c
_id = param("row_id")
_READ = Hot(select(_D.seq, _D.delta).where(_D.part_id == _id).order_by(_D.seq))
_DATA = Hot(select(_P.data_json).where(_P.id == _id).with_for_update())
_DROP = Hot(delete(deltas).where(_D.part_id == _id, _D.seq <= param("last")))
_ALL = Hot(select(_D.part_id).distinct())
_OF_MESSAGE = Hot(select(_D.part_id).join(parts, _P.id == _D.part_id).where(_P.message_id == _id).distinct())
_OF_SESSION = Hot(select(_D.part_id).join(parts, _P.id == _D.part_id).where(_P.session_id == _id).distinct())


def fold(db: Statements, part_id: str) -> bool:
    """Fold one part's tail; False if it has none."""
    row = db.row(_DATA, row_id=part_id)
    tail = db.rows(_READ, row_id=part_id)
    if row is None or not tail:
        return False
    data = grow(row[0], "".join([delta for _, delta in tail]))
    db.run(FOLD_PART, row_id=part_id, data=encode(data))
    db.run(_DROP, row_id=part_id, last=tail[-1][0])
    return True


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
