"""The members of a progression: appending in constant time, inserting and removing at any place.

A writer is alone on its database or locks the progression's row first, since places are assigned one after another.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, exists, func, insert, select

from persist.conversations.models import members, messages, progressions
from persist.conversations.storage.progression_folding import (
    FOLD_EVERY,
    FOLD_SHARE,
    LOCK,
    SET_ARRAY,
    SHOW,
    as_array,
    fold_if_long,
    member_ids,
    note_lagging,
)
from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.upsert import insert_missing
from persist.db.schema.column_types import Label
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import NotFound

_P, _M, _G = progressions.c, members.c, messages.c
_id = param("row_id")
_ADD = Statement(insert_missing(progressions, "id"))
_REMOVE = Statement(delete(progressions).where(_P.id == _id))
_EXISTS = Statement(select(_P.id).where(_P.id == _id))
# A message that a transaction names cannot be deleted until it ends; ids without a message may be named too.
_message = select(_G.id).where(_G.id == param("message")).with_for_update(read=True, key_share=True)
_HOLD = Statement(_message)
_held = _message.cte("held")
_LOCK_AND_HOLD = Statement(
    select(_P.id, select(func.count()).select_from(_held).scalar_subquery()).where(_P.id == _id).with_for_update(of=progressions)
)
_among_new = select(_G.id).join(members, _M.message_id == _G.id).where(_M.progression_id == _id, _M.ord >= param("first"))
_HOLD_NEW = Statement(
    select(func.count()).select_from(
        _among_new.order_by(_G.id).with_for_update(read=True, key_share=True, of=messages).subquery()
    )
)
_IDS_FROM = Statement(select(_M.message_id).where(_M.progression_id == _id, _M.ord >= param("first")).order_by(_M.ord))
_next_place = select(func.coalesce(func.max(_M.ord) + 1, 0)).where(_M.progression_id == _id)
_is_there = exists().where(_M.message_id == param("message"), _M.progression_id == _id)
_SIZE = Statement(select(_next_place.scalar_subquery(), _is_there))
_first = select(func.min(_M.ord)).where(_M.message_id == param("message"), _M.progression_id == _id).scalar_subquery()
_FROM_MESSAGE = Statement(select(_M.ord, _M.message_id).where(_M.progression_id == _id, _M.ord >= _first).order_by(_M.ord))
_APPEND = Statement(
    insert(members)
    .from_select(
        ["progression_id", "ord", "message_id"],
        select(_P.id, _next_place.scalar_subquery(), bindparam("message", type_=Label())).where(_P.id == _id, ~_is_there),
    )
    .returning(_M.ord)
)
INSERT = Statement(insert(members))
_DELETE_FROM = Statement(delete(members).where(_M.progression_id == _id, _M.ord >= param("first")))


def add_progression(work: UnitOfWork, id: str, ids: Sequence[str] = (), *, last: bool = False, **said: Any) -> bool:
    """Insert a progression with these members and columns; False, and no change, if the id exists. `last`: as of a batch."""
    with work.batch(last=last and not ids) as batch:
        added = add_row(work, batch, id, ids, **said)
    if not added.result:
        return False
    if ids:
        with work.batch(last=last) as batch:
            _insert(batch, id, 0, ids)
    return True


def add_members(work: UnitOfWork, batch: Batch, id: str, ids: Sequence[str]) -> None:
    """Insert a progression of an id that is new, with these members, with a batch."""
    add_row(work, batch, id, ids)
    _insert(batch, id, 0, ids)


def _insert(batch: Batch, id: str, first: int, ids: Sequence[str]) -> None:
    """Insert members at the places from `first` on with a batch, and hold their messages."""
    batch.run_many(INSERT, member_rows(id, first, ids))
    batch.lock(_HOLD_NEW, row_id=id, first=first)


def add_row(work: UnitOfWork, batch: Batch, id: str, ids: Sequence[str] = (), **said: Any) -> Pending[int]:
    """Insert the row of a progression with a batch, and not its members; 0, and no change, if the id exists."""
    columns = {"created_at": work.now(), "name": None, "node_metadata": None, **said}
    return batch.run(_ADD, id=id, folded=len(ids), collection=as_array(ids), **columns)


def remove_progression(work: UnitOfWork, id: str) -> None:
    """Delete a progression that got no owner."""
    work.run(_REMOVE, row_id=id)


def check_progressions(work: UnitOfWork, ids: Sequence[str]) -> None:
    """Raises NotFound unless all these progressions exist."""
    if ids:
        with work.batch() as batch:
            found = ask_progressions(batch, ids)
        check_found(found)


def ask_progressions(batch: Batch, ids: Sequence[str]) -> list[tuple[str, Pending[Row | None]]]:
    """Look for progressions with a batch, for `check_found`."""
    return [(id, batch.row(_EXISTS, row_id=id)) for id in ids]


def check_found(found: Iterable[tuple[str, Pending[Row | None]]]) -> None:
    """Raises NotFound unless a batch found all these progressions."""
    for id, row in found:
        if row.result is None:
            raise NotFound("progression", id)


def append(work: UnitOfWork, id: str, message_id: str) -> bool:
    """Append a message id; False if it is a member already, or the progression is unknown."""
    with work.batch() as batch:
        appended = add(batch, id, message_id)
    return note_added(work, id, appended)


def add(batch: Batch, id: str, message_id: str) -> Pending[Row | None]:
    """Append a message id that is no member yet, with a batch, and lock the progression's row; then call `note_added`."""
    batch.lock(_LOCK_AND_HOLD, row_id=id, message=message_id)
    return batch.returned(_APPEND, row_id=id, message=message_id)


def note_added(work: UnitOfWork, id: str, appended: Pending[Row | None]) -> bool:
    """Fold the progression if it is time to, after `add`; False if nothing was appended."""
    added = appended.result
    if added is None:
        return False
    if (added[0] + 1) % FOLD_EVERY:
        note_lagging(work, id)
    elif (row := work.row(LOCK, row_id=id)) is not None:
        with work.batch() as batch:
            fold_if_long(work, batch, id, row[0], added[0] + 1)
    return True


class Places:
    """A progression that is to be changed: locked and read with a batch, then rewritten from the first place that differs."""

    def __init__(self, work: UnitOfWork, batch: Batch, id: str) -> None:
        self._work, self.id = work, id
        self._locked = batch.row(LOCK, row_id=id)

    @property
    def is_there(self) -> bool:
        """Whether the progression exists."""
        return self._locked.result is not None

    def rewrite(self, batch: Batch, first: int, ids: Sequence[str], message_id: str | None = None) -> None:
        """Let these ids be the members from place `first` on, with a batch. `message_id`: the one that was not there before."""
        work, id = self._work, self.id
        assert self._locked.result is not None
        folded, places = self._locked.result[0], first + len(ids)
        batch.run(_DELETE_FROM, row_id=id, first=first)
        batch.run_many(INSERT, member_rows(id, first, ids))
        if message_id is not None:
            batch.lock(_HOLD, message=message_id)
        if folded <= first:
            fold_if_long(work, batch, id, folded, places)
            return
        # The array held places that have changed. Afterwards it lags by less than a sixteenth, as it does after appends.
        upto = first if len(ids) < first // FOLD_SHARE else places
        batch.run(SHOW, row_id=id, upto=upto)
        if upto < places:
            note_lagging(work, id)

    def replace(self, batch: Batch, first: int, ids: Sequence[str]) -> None:
        """Replace the members from place `first` on, and the published array, with a batch. `ids` are all members."""
        batch.run(_DELETE_FROM, row_id=self.id, first=first)
        _insert(batch, self.id, first, ids[first:])
        batch.run(SET_ARRAY, row_id=self.id, ids=as_array(ids), upto=len(ids))


def ask_size(batch: Batch, id: str, message_id: str) -> Pending[Row | None]:
    """Ask with a batch how many members a progression has, and whether the message is one."""
    return batch.row(_SIZE, row_id=id, message=message_id)


def ask_ids(batch: Batch, id: str, first: int = 0) -> Pending[list[Row]]:
    """The message ids from place `first` on, with a batch."""
    return batch.rows(_IDS_FROM, row_id=id, first=first)


def ask_from(batch: Batch, id: str, message_id: str) -> Pending[list[Row]]:
    """Places and message ids from the first place of a message on, with a batch; none if it is no member."""
    return batch.rows(_FROM_MESSAGE, row_id=id, message=message_id)


def unchanged(before: Sequence[Row], after: Sequence[str]) -> int:
    """How many places from the first are the same in the rows of `ask_ids` and in `after`."""
    differing = (place for place, ((old,), new) in enumerate(zip(before, after, strict=False)) if old != new)
    return next(differing, min(len(before), len(after)))


def cut(work: UnitOfWork, id: str, places: int) -> None:
    """Keep only the first `places` members, and rewrite the array."""
    if work.run(_DELETE_FROM, row_id=id, first=places):
        ids = member_ids(work, id)
        work.run(SET_ARRAY, row_id=id, ids=as_array(ids), upto=len(ids))


def member_rows(id: str, first: int, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of members at the places from `first` on, for INSERT."""
    return [{"progression_id": id, "ord": first + place, "message_id": message_id} for place, message_id in enumerate(ids)]
