"""The members of a progression: appended in constant time, changed at any place, folded into its published array."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, case, delete, exists, func, insert, literal, select, update

from persist.conversations.models import branches, members, messages, progressions, sessions
from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.upsert import insert_missing
from persist.db.schema.column_types import Int64, Label, label_rows, labels_array
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.json import JsonLimits, JsonText, encode
from persist.errors import InvalidValue, PayloadTooLarge, UnreadableRow, shown

# The array is rewritten every 64 places if a sixteenth of it is new: otherwise the cost would be quadratic. A server makes it
# itself; on a file it is made here, so that a progression that cannot be read is left as it is.

log = logging.getLogger("persist")
FOLD_EVERY = 64
FOLD_SHARE = 16
_MAX_LAGGING = 1000  # the most progressions folded at close; `maintain` folds the others
_NOTE = "progressions whose array lags"
_SOME = 100
_ANY_SIZE = JsonLimits(max_bytes=2**31)  # the size limit of JSON values is for arguments of verbs, not for this array
_P = progressions.c
_M = members.c
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


# A writer is alone on its database or locks the progression's row first, since places are assigned one after another.

_G = messages.c
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
        row.must_exist("progression", id)


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


_given = label_rows("ids")
_next_of_given = select(func.coalesce(func.max(_M.ord) + 1, 0)).where(_M.progression_id == _id).scalar_subquery()
_place = _next_of_given + func.row_number().over(order_by=_given.c.key) - 1
_given_is_there = exists().where(_M.message_id == _given.c.value, _M.progression_id == _id)
_EXTEND = Statement(
    insert(members).from_select(
        ["progression_id", "ord", "message_id"], select(_P.id, _place, _given.c.value).where(_P.id == _id, ~_given_is_there)
    )
)


class Extension:
    """Appending ids to a progression that are not members yet, in order: first `add`, then `end`."""

    def __init__(self, work: UnitOfWork, id: str, ids: Iterable[str]) -> None:
        self._work, self._id = work, id
        self._ids = list(dict.fromkeys(ids))

    def add(self, batch: Batch) -> None:
        """Lock the progression and append them, with a batch."""
        batch.lock(LOCK, row_id=self._id)
        self._added: Pending[int] = batch.run(_EXTEND, row_id=self._id, ids=self._ids)
        self._ends: Pending[Row | None] = ask_ends(self._work, batch, self._id)

    def end(self) -> None:
        """Rewrite the published array if it is time to, after `add`. Raises NotFound."""
        ends = self._ends.must_exist("progression", self._id)
        if self._added.result:
            with self._work.batch() as batch:
                fold_if_long(self._work, batch, self._id, *ends)
