"""Folding the members of a progression into its published array.

Every 64 places the array is rewritten if a sixteenth of it is new; every 64 unconditionally would be quadratic in long
progressions. Where statements travel, the array is made by the server, whose types admit no id that is none. On a file it is made
here, so that a progression that cannot be read is left as it is.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import case, exists, func, literal, select, update

from persist.conversations.models import branches, members, progressions, sessions
from persist.db.changes.batch import Batch, Pending
from persist.db.schema.arrays import labels_array
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.json import JsonLimits, JsonText, encode
from persist.errors import InvalidValue, PayloadTooLarge, UnreadableRow
from persist.quoting import shown

log = logging.getLogger("persist")

FOLD_EVERY = 64
FOLD_SHARE = 16
_MAX_LAGGING = 1000  # the most progressions folded at close; `maintain` folds the others
_NOTE = "progressions whose array lags"
_SOME = 100
_ANY_SIZE = JsonLimits(max_bytes=2**31)  # the size limit of JSON values is for arguments of verbs, not for this array

_P, _M = progressions.c, members.c
_id = param("row_id")
LOCK = Statement(select(_P.folded).where(_P.id == _id).with_for_update())
_IDS = Statement(select(_M.message_id).where(_M.progression_id == _id).order_by(_M.ord))
_next = select(func.coalesce(func.max(_M.ord) + 1, 0)).where(_M.progression_id == _P.id).scalar_subquery()
_ends = select(_P.folded, _next)
ENDS = Statement(_ends.where(_P.id == _id))
"""How many places the published array has, and the progression."""

SET_ARRAY = Statement(update(progressions).where(_P.id == _id).values(collection=param("ids"), folded=param("upto")))
_FOLD = Statement(SET_ARRAY.statement, silent=True)
_shown = select(_M.message_id, _M.ord).where(_M.progression_id == _id, _M.ord < param("upto"))
SHOW = Statement(update(progressions).where(_P.id == _id).values(collection=labels_array(_shown), folded=param("upto")))
_FOLD_THERE = Statement(SHOW.statement, silent=True)
_all = select(_M.message_id, _M.ord).where(_M.progression_id == _id)
_share = _P.folded // literal(FOLD_SHARE, Int64())
_is_long = _next - _P.folded >= case((_share > FOLD_EVERY, _share), else_=FOLD_EVERY)
_FOLD_IF_LONG = Statement(
    update(progressions).where(_P.id == _id, _is_long).values(collection=labels_array(_all), folded=_next), silent=True
)
_BEHIND = Statement(
    select(_P.id).where(exists().where(_M.progression_id == _P.id, _M.ord >= _P.folded)).order_by(_P.id).limit(_SOME)
)


class Owned:
    """The statements that lock the one progression that an owner has, and tell how far its array lags."""

    def __init__(self, chosen: Any) -> None:
        self.lock = Statement(select(_P.id).where(_P.id == chosen).with_for_update())
        self.ends = Statement(_ends.where(_P.id == chosen))


BY_ID = Owned(_id)
OF_SESSION = Owned(select(sessions.c.progression_id).where(sessions.c.id == _id).scalar_subquery())
OF_BRANCH = Owned(select(branches.c.progression_id).where(branches.c.id == _id).scalar_subquery())


def member_ids(work: UnitOfWork, id: str) -> list[str]:
    """The message ids in order; empty for an unknown progression."""
    return [message_id for (message_id,) in work.rows(_IDS, row_id=id)]


def fold(work: UnitOfWork, id: str) -> bool:
    """Rewrite the published array if it lags behind the members; False if it does not, or cannot be read, which is logged."""
    with work.batch() as batch:
        asked = ask_lag(work, batch, BY_ID, id)
    array = lagging_array(work, id, asked)
    if array is not None:
        with work.batch() as batch:
            fold_with(batch, array)
    return array is not None


def ask_lag(work: UnitOfWork, batch: Batch, owned: Owned, id: str) -> Pending[Row | None] | None:
    """Lock an owner's progression and ask how far its array lags, for `lagging_array`; None on a file, where that one asks."""
    if not work.runtime.dialect.pipelines:
        return None
    batch.lock(owned.lock, row_id=id)
    return batch.row(owned.ends, row_id=id)


def lagging_array(work: UnitOfWork, id: str, asked: Pending[Row | None] | None) -> dict[str, Any] | None:
    """What `fold_with` writes to a locked progression. None if its array does not lag, or cannot be read, which is logged."""
    try:
        ends = work.row(ENDS, row_id=id) if asked is None else asked.result
        if ends is None or ends[0] == ends[1]:
            return None
        upto = ends[1]
        if asked is not None:
            return {"row_id": id, "upto": upto}
        if type(upto) is not int:
            raise UnreadableRow("progression_members", [id], "ord", "a number is stored where an integer belongs")
        return {"row_id": id, "ids": as_array(member_ids(work, id)), "upto": upto}
    except (UnreadableRow, InvalidValue, PayloadTooLarge) as error:  # nothing was written yet
        log.warning("the progression %s is left as it is: %s", shown(id), error)
        return None


def fold_with(batch: Batch, array: Mapping[str, Any]) -> None:
    """Rewrite the published array with a batch."""
    batch.run(_FOLD if "ids" in array else _FOLD_THERE, **array)


def ask_ends(work: UnitOfWork, batch: Batch, id: str) -> Pending[Row | None]:
    """Ask with a batch how many places the published array has and the progression; where statements travel, fold it before."""
    if work.runtime.dialect.pipelines:
        batch.run(_FOLD_IF_LONG, row_id=id)
    return batch.row(ENDS, row_id=id)


def fold_some(work: UnitOfWork) -> int:
    """Fold up to a hundred progressions whose array lags behind their members; how many."""
    return sum([fold(work, id) for (id,) in work.rows(_BEHIND)])


def fold_if_long(work: UnitOfWork, batch: Batch, id: str, folded: int, places: int) -> None:
    """Rewrite the published array of a locked progression with a batch if it lags far behind, else note that it lags."""
    if places - folded < max(FOLD_EVERY, folded // FOLD_SHARE):
        if folded != places:
            note_lagging(work, id)
        return
    if work.runtime.dialect.pipelines:
        batch.run(_FOLD_THERE, row_id=id, upto=places)
    else:
        batch.run(_FOLD, row_id=id, ids=as_array(member_ids(work, id)), upto=places)
    _lagging(work).discard(id)


def note_lagging(work: UnitOfWork, id: str) -> None:
    """Remember to fold the progression when the store closes."""
    if len(_lagging(work)) < _MAX_LAGGING:
        _lagging(work).add(id)


def fold_lagging(work: UnitOfWork) -> None:
    """Fold the progressions that this store left unfolded; called when the store closes."""
    for id in sorted(_lagging(work)):
        fold(work, id)
    _lagging(work).clear()


def has_lagging(runtime: Runtime) -> bool:
    """Whether `fold_lagging` has anything to do."""
    return bool(runtime.own_writes[_NOTE])


def folds_at_close(work: UnitOfWork, id: str) -> bool:
    """Whether this store has appended to the progression and will fold it when it closes."""
    return id in _lagging(work)


def _lagging(work: UnitOfWork) -> set[str]:
    return work.runtime.own_writes[_NOTE]


def as_array(ids: Sequence[str]) -> JsonText:
    """The published array of these ids."""
    return encode(list(ids), "ids", _ANY_SIZE)
