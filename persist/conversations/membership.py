"""The members of a progression: appending in the time of one insert, and folding them into the published array.

Whoever changes a progression is its only writer, or locks its row first: places are given one after another. Every 64
places the array is rewritten, if a sixteenth of it is new: every 64 in any case would be quadratic in a long one.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, exists, func, insert, select, update

from persist.conversations.models import members, messages, progressions
from persist.db.arrays import labels_array
from persist.db.hot import Hot, param
from persist.db.insert import insert_missing
from persist.db.json import JsonLimits, JsonText, encode
from persist.db.runtime import Runtime
from persist.db.trial import left_alone
from persist.db.types import Label
from persist.db.work import Work
from persist.errors import InvalidValue, NotFound, UnreadableRow
from persist.quoting import shown

FOLD_EVERY = 64
_FOLD_SHARE = 16
_MOST_LAGGING = 1000  # closing folds these; what is beyond is left to maintenance
_NOTE = "progressions whose array lags"
_CHUNK = 500
_SOME = 100
_ANY_SIZE = JsonLimits(max_bytes=2**31)  # the cap of one JSON value is for what callers give

_P, _M, _G = progressions.c, members.c, messages.c
_id = param("row_id")
_ADD = Hot(insert_missing(progressions, "id"))
_REMOVE = Hot(delete(progressions).where(_P.id == _id))
_EXISTS = Hot(select(_P.id).where(_P.id == _id))
_LOCK = Hot(select(_P.folded).where(_P.id == _id).with_for_update())
# A message stays while the transaction lasts that names it; the ids of those that are not there may be named too.
_message = select(_G.id).where(_G.id == param("message")).with_for_update(read=True, key_share=True)
_HOLD = Hot(_message)
_held = _message.cte("held")
_LOCK_AND_HOLD = Hot(
    select(_P.id, select(func.count()).select_from(_held).scalar_subquery()).where(_P.id == _id).with_for_update(of=progressions)
)
_among_new = select(_G.id).join(members, _M.message_id == _G.id).where(_M.progression_id == _id, _M.ord >= param("first"))
_HOLD_NEW = Hot(
    select(func.count()).select_from(
        _among_new.order_by(_G.id).with_for_update(read=True, key_share=True, of=messages).subquery()
    )
)
_IDS = Hot(select(_M.message_id).where(_M.progression_id == _id).order_by(_M.ord))
_IDS_FROM = Hot(select(_M.message_id).where(_M.progression_id == _id, _M.ord >= param("first")).order_by(_M.ord))
_next_place = select(func.coalesce(func.max(_M.ord) + 1, 0)).where(_M.progression_id == _id)
_NEXT = Hot(_next_place)
_is_there = exists().where(_M.message_id == param("message"), _M.progression_id == _id)
_SIZE = Hot(select(_next_place.scalar_subquery(), _is_there))
_FIRST = Hot(select(func.min(_M.ord)).where(_M.message_id == param("message"), _M.progression_id == _id))
_APPEND = Hot(
    insert(members)
    .from_select(
        ["progression_id", "ord", "message_id"],
        select(_P.id, _next_place.scalar_subquery(), bindparam("message", type_=Label())).where(_P.id == _id, ~_is_there),
    )
    .returning(_M.ord)
)
_INSERT = Hot(insert(members))
_DELETE_FROM = Hot(delete(members).where(_M.progression_id == _id, _M.ord >= param("first")))
_SET_ARRAY = Hot(update(progressions).where(_P.id == _id).values(collection=param("ids"), folded=param("upto")))
_FOLD = Hot(_SET_ARRAY.statement, silent=True)
_shown = select(_M.message_id, _M.ord).where(_M.progression_id == _id, _M.ord < param("upto"))
_SHOW = Hot(update(progressions).where(_P.id == _id).values(collection=labels_array(_shown), folded=param("upto")))
_BEHIND = Hot(select(_P.id).where(exists().where(_M.progression_id == _P.id, _M.ord >= _P.folded)).order_by(_P.id).limit(_SOME))


def add_progression(work: Work, id: str, ids: Sequence[str] = (), **said: Any) -> bool:
    """A new progression with these members, and what is said of it; False, and nothing merged, where there is one of that id."""
    columns = {"created_at": work.now(), "name": None, "node_metadata": None, **said}
    if not work.run(_ADD, id=id, folded=len(ids), collection=_array(ids), **columns):
        return False
    if ids:
        _insert(work, id, 0, ids)
        _hold(work, id, 0)
    return True


def remove_progression(work: Work, id: str) -> None:
    """Delete one that nobody came to own."""
    work.run(_REMOVE, row_id=id)


def check_progression(work: Work, id: str) -> None:
    """NotFound unless there is one."""
    if work.row(_EXISTS, row_id=id) is None:
        raise NotFound("progression", id)


def lock_progression(work: Work, id: str) -> None:
    """Wait for whoever writes it, and let nobody else until the transaction ends."""
    work.row(_LOCK, row_id=id)


def member_ids(work: Work, id: str) -> list[str]:
    """The message ids in order; none for an unknown progression."""
    return [message_id for (message_id,) in work.rows(_IDS, row_id=id)]


def append(work: Work, id: str, message_id: str) -> bool:
    """Add it at the end, unless it is there already; False then, and for an unknown progression."""
    if not work.runtime.dialect.one_writer and work.row(_LOCK_AND_HOLD, row_id=id, message=message_id) is None:
        return False
    added = work.returned(_APPEND, row_id=id, message=message_id)
    if added is None:
        return False
    if (added[0] + 1) % FOLD_EVERY:
        _note_lagging(work, id)
    elif (row := work.row(_LOCK, row_id=id)) is not None:
        _fold_if_long(work, id, row[0], added[0] + 1)
    return True


def extend(work: Work, id: str, ids: Iterable[str]) -> int:
    """Add those that are not there yet, in their order; how many. NotFound for an unknown progression."""
    row = work.row(_LOCK, row_id=id)
    if row is None:
        raise NotFound("progression", id)
    distinct = list(dict.fromkeys(ids))
    there = _present(work, id, distinct)
    new = [message_id for message_id in distinct if message_id not in there]
    if new:
        following = work.row(_NEXT, row_id=id)
        assert following is not None
        _insert(work, id, following[0], new)
        _fold_if_long(work, id, row[0], following[0] + len(new))
    return len(new)


def replace(work: Work, id: str, ids: Sequence[str]) -> None:
    """Make these its members, and its array; NotFound."""
    if work.row(_LOCK, row_id=id) is None:
        raise NotFound("progression", id)
    same = unchanged(work, id, ids)
    work.run(_DELETE_FROM, row_id=id, first=same)
    _insert(work, id, same, ids[same:])
    _hold(work, id, same)
    work.run(_SET_ARRAY, row_id=id, ids=_array(ids), upto=len(ids))


def lock_to_insert(work: Work, id: str, index: int, message_id: str) -> bool:
    """Lock a progression; whether the message may come to that place: not where it is there already, or there is no such one."""
    if work.row(_LOCK, row_id=id) is None:
        return False
    row = work.row(_SIZE, row_id=id, message=message_id)
    assert row is not None
    size, is_there = row
    if index > size:
        raise InvalidValue("index", f"the progression {id!r} has {size} items.")
    return not is_there


def lock_to_remove(work: Work, id: str, message_id: str) -> int | None:
    """Lock a progression; the first place of the message, if it is there."""
    work.row(_LOCK, row_id=id)
    row = work.row(_FIRST, row_id=id, message=message_id)
    return None if row is None else row[0]


def insert_at(work: Work, id: str, place: int, message_id: str) -> None:
    """Put a message at a place of a progression that is locked; what is there and behind moves on by one place."""
    following = _ids_from(work, id, place)
    if not work.runtime.dialect.one_writer:
        work.row(_HOLD, message=message_id)
    _rewrite(work, id, place, [message_id, *following])


def remove_from(work: Work, id: str, first: int, message_id: str) -> None:
    """Take a message out of a progression that is locked, from its first place on; what is behind moves up."""
    _rewrite(work, id, first, [one for one in _ids_from(work, id, first) if one != message_id])


def _rewrite(work: Work, id: str, first: int, ids: Sequence[str]) -> None:
    work.run(_DELETE_FROM, row_id=id, first=first)
    _insert(work, id, first, ids)
    row = work.row(_LOCK, row_id=id)
    assert row is not None
    places = first + len(ids)
    if row[0] <= first:
        _fold_if_long(work, id, row[0], places)
        return
    # The array showed places that are others now. What lags of it afterwards is less than a sixteenth, as after appends.
    upto = first if len(ids) < first // _FOLD_SHARE else places
    work.run(_SHOW, row_id=id, upto=upto)
    if upto < places:
        _note_lagging(work, id)


def _ids_from(work: Work, id: str, first: int) -> list[str]:
    return [message_id for (message_id,) in work.rows(_IDS_FROM, row_id=id, first=first)]


def cut(work: Work, id: str, places: int) -> None:
    """Only the first so many places stay, and its array is what its members are."""
    if work.run(_DELETE_FROM, row_id=id, first=places):
        ids = member_ids(work, id)
        work.run(_SET_ARRAY, row_id=id, ids=_array(ids), upto=len(ids))


def unchanged(work: Work, id: str, after: Sequence[str]) -> int:
    """How many places from the first stay when these become its members."""
    before = member_ids(work, id)
    differing = (place for place, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    return next(differing, min(len(before), len(after)))


def fold(work: Work, id: str) -> bool:
    """Bring the published array up to the members; False where it is."""
    row = work.row(_LOCK, row_id=id)
    following = work.row(_NEXT, row_id=id)
    if row is not None and following is not None and row[0] != following[0]:
        if type(following[0]) is not int:
            raise UnreadableRow("progression_members", [id], "ord", "a number is stored where an integer belongs")
        work.run(_FOLD, row_id=id, ids=_array(member_ids(work, id)), upto=following[0])
        return True
    return False


def fold_some(work: Work) -> int:
    """Fold up to a hundred progressions whose array lags, whoever appended to them; how many."""
    count = 0
    for (id,) in work.rows(_BEHIND):
        with left_alone(work, f"the progression {shown(id)}"):
            count += fold(work, id)
    return count


def _fold_if_long(work: Work, id: str, folded: int, places: int) -> None:
    if places - folded >= max(FOLD_EVERY, folded // _FOLD_SHARE):
        work.run(_FOLD, row_id=id, ids=_array(member_ids(work, id)), upto=places)
        _lagging(work).discard(id)
    else:
        _note_lagging(work, id)


def _note_lagging(work: Work, id: str) -> None:
    if len(_lagging(work)) < _MOST_LAGGING:
        _lagging(work).add(id)


def fold_lagging(work: Work) -> None:
    """Fold what this store appended to and left unfolded: when it closes."""
    for id in sorted(_lagging(work)):
        fold(work, id)
    _lagging(work).clear()


def has_lagging(runtime: Runtime) -> bool:
    """Whether there is anything for `fold_lagging` to do."""
    return bool(runtime.notes[_NOTE])


def folds_at_close(work: Work, id: str) -> bool:
    """Whether this very store appended to it and will fold it when it closes."""
    return id in _lagging(work)


def _lagging(work: Work) -> set[str]:
    return work.runtime.notes[_NOTE]


def _present(work: Work, id: str, ids: Sequence[str]) -> set[str]:
    """Which of these it holds: looked up one by one, so that it may be long."""
    found: set[str] = set()
    for start in range(0, len(ids), _CHUNK):
        some = _M.message_id.in_(ids[start : start + _CHUNK])
        found |= {message_id for (message_id,) in work.found(select(_M.message_id).where(_M.progression_id == id, some))}
    return found


def _hold(work: Work, id: str, first: int) -> None:
    """Nobody deletes the messages that are named from there on, unless it is done already."""
    if not work.runtime.dialect.one_writer:
        work.row(_HOLD_NEW, row_id=id, first=first)


def _array(ids: Sequence[str]) -> JsonText:
    return encode(list(ids), "ids", _ANY_SIZE)


def _insert(work: Work, id: str, first: int, ids: Sequence[str]) -> None:
    work.run_many(
        _INSERT,
        [{"progression_id": id, "ord": first + place, "message_id": message_id} for place, message_id in enumerate(ids)],
    )
