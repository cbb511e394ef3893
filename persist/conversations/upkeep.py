"""Upkeep of conversations: pruning by age and erasing a person's data have modules of their own.

An export holds a conversation's branches, their progressions and every message that these name; no exchange items: their `seq`
orders the whole database. The doctor names stale running sessions, wrong fork pointers, and arrays behind their members.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Text, case, func, insert, or_, select, type_coerce, union, update

from persist.conversations.erasing import ERASABLES
from persist.conversations.models import (
    KNOWN_TYPES,
    branches,
    exchange_cursors,
    exchange_items,
    members,
    message_types,
    messages,
    progressions,
    sessions,
    transitions,
)
from persist.conversations.pruning import PRUNINGS
from persist.conversations.repository import Conversations
from persist.conversations.staleness import stale_sessions
from persist.conversations.storage import lineage as pointers
from persist.conversations.storage import progressions as folding
from persist.conversations.storage.lineage import POINTERS
from persist.db.dialects.interface import Problem, Severity
from persist.db.operations.upkeep import Exported, Rows, Rules, Takeover, Upkeep, the_id
from persist.db.schema.base import floats32, texts
from persist.db.statements.prepared import Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.clock import from_epoch_s
from persist.db.values.json import decode
from persist.errors import InvalidValue

# Adopting files of older programs: progressions kept only as arrays, fork pointers only in metadata, other class numbers.

_BATCH = 5_000
_S = sessions.c
_M = messages.c
_P = progressions.c
_MESSAGE_TYPES = message_types.c


def _pointer(name: str, kind: str) -> ColumnElement[Any]:
    """The value of a published metadata key, NULL unless its JSON type is `kind`."""
    text = type_coerce(branches.c.node_metadata, Text())
    there = case((func.json_valid(text) == 1, func.json_type(text, f"$.{name}")))
    return case((there == kind, func.json_extract(text, f"$.{name}")))


def _number_types(takeover: Takeover) -> None:
    """Give known classes their published numbers; another class with a used number gets a new number after the last."""
    found = {path: number for number, path in takeover.rows(select(_MESSAGE_TYPES.type_id, _MESSAGE_TYPES.lion_class))}
    wanted = {path: number for number, path in KNOWN_TYPES.items()}
    last = max([*found.values(), *KNOWN_TYPES])
    changes: dict[int, int] = {}
    for path, number in sorted(found.items(), key=lambda item: item[1]):
        if path in wanted:
            changes[number] = wanted[path]
        elif number in KNOWN_TYPES:
            changes[number] = last = last + 1
    changes = {old: new for old, new in changes.items() if old != new}
    if not changes:
        return
    below = {old: -1 - new for old, new in changes.items()}  # unused numbers, while numbers are swapped
    takeover.run(
        update(message_types).where(_MESSAGE_TYPES.type_id.in_(below)).values(type_id=case(below, value=_MESSAGE_TYPES.type_id))
    )
    takeover.run(update(message_types).where(_MESSAGE_TYPES.type_id < 0).values(type_id=-1 - _MESSAGE_TYPES.type_id))
    count = takeover.run(update(messages).where(_M.lion_class.in_(changes)).values(lion_class=case(changes, value=_M.lion_class)))
    takeover.settle(message_types, "message classes got their published numbers", len(changes))
    takeover.settle(messages, "messages follow the numbers of their classes", count)


def _name_types(takeover: Takeover) -> None:
    """Name class numbers that have no row: reads join `message_types` and would not find their messages."""
    nameless = select(_M.lion_class).where(_M.lion_class.not_in(select(_MESSAGE_TYPES.type_id))).distinct()
    numbers = [number for (number,) in takeover.rows(nameless)]
    if numbers:
        rows = [{"type_id": number, "lion_class": f"__unknown_{number}__"} for number in numbers]
        takeover.connection.execute(insert(message_types), rows)
    takeover.settle(message_types, "numbers without a message class got a name", len(numbers))


def _fill_members(takeover: Takeover) -> None:
    """Write the array of every progression into `progression_members`, one row per place, duplicates included."""
    if takeover.brought(members) or not takeover.brought(progressions):
        return
    query = select(_P.id, type_coerce(_P.collection, Text())).order_by(_P.id)
    found = takeover.connection.execute(query, execution_options={"yield_per": 100})
    batch: list[dict[str, Any]] = []
    unreadable = 0
    for progression_id, text in found:
        ids = _array(text)
        if ids is None:
            unreadable += 1
            continue
        for row in _members(progression_id, ids):
            batch.append(row)
            if len(batch) == _BATCH:
                _insert(takeover, batch)
    _insert(takeover, batch)
    counted = select(func.count()).where(members.c.progression_id == _P.id).scalar_subquery()
    takeover.run(update(progressions).values(folded=counted))
    takeover.notice("progressions.collection", "no array of ids: the progression is empty now, its text stays", unreadable)


def _array(text: object) -> list[Any] | None:
    try:
        ids = decode(text) if isinstance(text, str) else None
    except InvalidValue:
        return None
    return ids if isinstance(ids, list) and all(isinstance(id, str) for id in ids) else None


def _members(progression_id: str, ids: list[Any]) -> Iterator[dict[str, Any]]:
    for place, message_id in enumerate(ids):
        yield {"progression_id": progression_id, "ord": place, "message_id": message_id}


def _insert(takeover: Takeover, batch: list[dict[str, Any]]) -> None:
    if batch:
        takeover.connection.execute(insert(members), batch)
    takeover.moved += len(batch)
    batch.clear()


RULES = Rules(
    values={
        _S.last_message_at: func.coalesce(_S.started_at, _S.created_at),
        _S.updated_at: func.coalesce(_S.last_message_at, _S.ended_at, _S.started_at, _S.created_at),
        branches.c[POINTERS[0]]: _pointer(POINTERS[0], "text"),
        branches.c[POINTERS[1]]: _pointer(POINTERS[1], "integer"),
    },
    always_written=frozenset({transitions.c.reason_code}),
    settle=(_number_types,),
    fill=(_name_types, _fill_members),
)


_B = branches.c
_F = members.c
_TRANSITIONS = transitions.c

_branch_ids = select(_B.id).where(_B.session_id == the_id())
_progressions = union(
    select(_S.progression_id).where(_S.id == the_id()), select(_B.progression_id).where(_B.session_id == the_id())
)
_named = union(
    select(_F.message_id).where(_F.progression_id.in_(_progressions)),
    select(_S.first_msg_id).where(_S.id == the_id()),
    select(_S.last_msg_id).where(_S.id == the_id()),
    select(_B.system_msg_id).where(_B.session_id == the_id()),
)


_places = select(func.coalesce(func.max(_F.ord) + 1, 0)).where(_F.progression_id == _P.id).scalar_subquery()
_LAGGING = select(_P.id).where(_P.folded != _places).order_by(_P.id)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """Yield running sessions silent for more than a day, fork pointers that have no effect, and lagging arrays."""
    for session in stale_sessions(Conversations(work), now=work.now()):
        since = "nobody knows since when" if session.started_at is None else f"since {session.started_at:%Y-%m-%d %H:%M} UTC"
        message = f"it says running, {since}; persist conversations doctor ends it."
        yield Problem("session_stale", Severity.WARNING, f"conversation {session.id}", message)
    for branch, why, mends in pointers.astray(work):
        repair = partial(pointers.adopt, id=branch.id) if mends else None
        yield Problem("branch_pointers", Severity.WARNING, f"branch {branch.id}", why, repair)
    lagging = [id for (id,) in work.found(_LAGGING, unreadable=OnUnreadable.LEAVE_OUT) if not folding.folds_at_close(work, id)]
    if lagging:
        message = f"progressions whose published array lags behind the members, which are what counts: {len(lagging):,}."
        yield Problem("progressions_lagging", Severity.INFO, "table progressions", message, partial(_fold, ids=lagging))


def _fold(work: UnitOfWork, *, ids: Sequence[str]) -> None:
    for id in ids:
        folding.fold(work, id)


def _seconds(value: float) -> str | None:
    """Checks a message's instant, which is stored as the number its runtime gave."""
    try:
        from_epoch_s(value)
    except InvalidValue:
        return "no instant"
    return None


_LAST = Statement(select(func.max(exchange_items.c.seq)))


def _empty_array(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """An empty array: members are the source of truth, and doctor folds the array from them."""
    return {"collection": [], "folded": 0}


def _no_message(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The quarantine id as message id: places have no gaps, and a member may name a message that does not exist."""
    return {"message_id": row["quarantine"]}


def _class_of(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A class path for the row's number, by which messages refer to it."""
    return {"lion_class": KNOWN_TYPES.get(row["type_id"], f"__unknown__.{row['type_id']}")}


def _last_given(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The highest seq in use for the row with owner '', so that none is given twice; 0 (nothing read) for an owner."""
    found = work.row(_LAST) if (row["owner"], row["channel"]) == ("", "") else None
    return {"seq": (found[0] if found else None) or 0}


UPKEEP = Upkeep(
    prunings=PRUNINGS,
    erasables=ERASABLES,
    exports=(
        Exported(
            "conversation",
            _S.id,
            (
                Rows(
                    message_types,
                    message_types.c.type_id.in_(select(_M.lion_class).where(_M.id.in_(_named))),
                    (message_types.c.type_id,),
                    shared=True,
                ),
                Rows(messages, _M.id.in_(_named), (_M.id,), shared=True),
                Rows(progressions, _P.id.in_(_progressions), (_P.id,)),
                Rows(members, _F.progression_id.in_(_progressions), (_F.progression_id, _F.ord)),
                Rows(sessions, _S.id == the_id(), (_S.id,)),
                Rows(branches, _B.session_id == the_id(), (_B.created_at, _B.id)),
                Rows(  # status transitions outlive the session
                    transitions,
                    or_(_TRANSITIONS.entity_id == the_id(), _TRANSITIONS.entity_id.in_(_branch_ids)),
                    (_TRANSITIONS.created_at, _TRANSITIONS.id),
                    shared=True,
                ),
            ),
        ),
    ),
    checkup=checkup,
    shapes={messages.c.created_at: _seconds, messages.c.embedding: floats32, progressions.c.collection: texts},
    stand_ins={
        progressions.c.collection: _empty_array,
        progressions.c.folded: _empty_array,
        members.c.message_id: _no_message,
        message_types.c.lion_class: _class_of,
        exchange_cursors.c.seq: _last_given,
    },
    adoption=RULES,
)
