"""Adopting files of older programs: progressions kept only as arrays, fork pointers only in metadata, other class numbers."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Text, case, func, insert, select, type_coerce, update

from persist.conversations.models import (
    KNOWN_TYPES,
    branches,
    members,
    message_types,
    messages,
    progressions,
    sessions,
    transitions,
)
from persist.conversations.storage.lineage import POINTERS
from persist.db.operations.adopting import Rules, Takeover
from persist.db.values.json import decode
from persist.errors import InvalidValue

_BATCH = 5_000
_S, _M, _P, _T = sessions.c, messages.c, progressions.c, message_types.c


def _pointer(name: str, kind: str) -> ColumnElement[Any]:
    """The value of a published metadata key, NULL unless its JSON type is `kind`."""
    text = type_coerce(branches.c.node_metadata, Text())
    there = case((func.json_valid(text) == 1, func.json_type(text, f"$.{name}")))
    return case((there == kind, func.json_extract(text, f"$.{name}")))


def _number_types(takeover: Takeover) -> None:
    """Give known classes their published numbers; another class that has one of these gets a new number after the last."""
    found = {path: number for number, path in takeover.rows(select(_T.type_id, _T.lion_class))}
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
    takeover.run(update(message_types).where(_T.type_id.in_(below)).values(type_id=case(below, value=_T.type_id)))
    takeover.run(update(message_types).where(_T.type_id < 0).values(type_id=-1 - _T.type_id))
    count = takeover.run(update(messages).where(_M.lion_class.in_(changes)).values(lion_class=case(changes, value=_M.lion_class)))
    takeover.settle(message_types, "message classes got their published numbers", len(changes))
    takeover.settle(messages, "messages follow the numbers of their classes", count)


def _name_types(takeover: Takeover) -> None:
    """Name class numbers that have no row: reads join `message_types` and would not find their messages."""
    nameless = select(_M.lion_class).where(_M.lion_class.not_in(select(_T.type_id))).distinct()
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
