"""Taking erased rows out of the event log: events keep their numbers, and lose the data of these rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, bindparam, func, or_, select, true, update

from persist.db.changes.journal import VerbChanges, key_of, place_of
from persist.db.operations.erasing import SOME, Key, in_parts
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable, Unreadable, is_unreadable
from persist.db.values.json import JsonLimits, encode
from persist.events.models import event_heads, event_log
from persist.events.schemas import ERASED, VERSION
from persist.events.writing import plain_rows

BLANK: dict[str, Any] = {"v": VERSION, "erased": True}
"""The data of an event of which nothing is left."""

_ANY_SIZE = JsonLimits(max_bytes=2**31, max_depth=254)
_LOOK = 500
_PART = 200
_E, _H = event_log.c, event_heads.c

Change = Mapping[str, Any]
Condition = ColumnElement[bool]
Kept = Callable[[Sequence[Change]], Sequence[Change]]
"""Returns those of an event's changes that stay."""


def last_position(work: UnitOfWork) -> int:
    """The position of the newest event; 0 if there is none."""
    return int(work.select(select(func.coalesce(func.max(_E.position), 0))).scalar_one())


def say_erased(work: UnitOfWork, streams: Sequence[str]) -> None:
    """Add an event to each logged stream that says that its rows were erased, if the log is on."""
    log = work.runtime.log
    if log is None or work.events.log is None:
        return
    for part in in_parts(streams, _PART):
        known = work.found(select(_H.stream_id).where(_H.stream_id.in_(part)).order_by(_H.stream_id))
        if known:
            work.events.written += log.write(work, [VerbChanges(ERASED, stream, data=BLANK) for (stream,) in known])


def blank_some(work: UnitOfWork, streams: Sequence[str], upto: int) -> int:
    """Blank up to SOME events of the streams, none later than the position `upto`; how many, 0 when all are blank."""
    blank = bindparam("blank", encode(BLANK, "data", _ANY_SIZE), type_=_E.data.type)
    chosen = select(_E.position).where(_E.stream_id.in_(streams), _E.position <= upto, _E.data != blank)
    some = chosen.order_by(_E.position).limit(SOME)
    return work.change(update(event_log).where(_E.position.in_(some)).values(data=blank))


def blank_some_actors(work: UnitOfWork, names: Sequence[str]) -> tuple[int, int]:
    """Take these names from up to SOME events that they did; how many, and how many of these said something besides."""
    blank = bindparam("blank", encode(BLANK, "data", _ANY_SIZE), type_=_E.data.type)
    chosen = select(_E.position, _E.data != blank).where(_E.actor.in_(names)).order_by(_E.position).limit(SOME)
    found = work.found(chosen)
    for part in in_parts([position for position, _ in found], _PART):
        work.change(update(event_log).where(_E.position.in_(part)).values(actor=None))
    return len(found), sum(1 for _, says in found if says)


def thin_some(
    work: UnitOfWork, where: ColumnElement[bool], after: int, upto: int, kept: Kept, *, others: bool
) -> tuple[int, int]:
    """Take changes out of the next events behind the position `after`; the last position looked at and how many were changed.

    `kept`: the changes that stay. `others`: also blank events without changes, as a host's. The last position is `upto`.
    """
    query = select(_E.position, _E.data).where(where, _E.position > after, _E.position <= upto)
    found = work.found(query.order_by(_E.position).limit(_LOOK))
    changed = 0
    for position, data in found:
        smaller = (BLANK if others else None) if is_unreadable(data) else _thinned(data, kept, others=others)
        if smaller is not None:
            changed += work.change(
                update(event_log)
                .where(_E.position == position)
                .values(data=bindparam("smaller", encode(smaller, "data", _ANY_SIZE), type_=_E.data.type))
            )
    return (found[-1][0] if len(found) == _LOOK else upto), changed


def _thinned(data: Any, kept: Kept, *, others: bool) -> dict[str, Any] | None:
    """The data of an event without the changes that do not stay; None if it is unchanged."""
    if data == BLANK:
        return None
    changes = changes_of(data)
    if changes is None:
        return BLANK if others else None
    staying = list(kept(changes))
    if len(staying) == len(changes):
        return None
    more = {"more": True} if data.get("more") is True else {}
    return {**BLANK, "changes": staying, **more} if staying else {**BLANK, **more}


def changes_of(data: Any) -> list[Change] | None:
    """The changes of an event that persist wrote; None for any other event."""
    changes = data.get("changes") if isinstance(data, dict) else None
    if not isinstance(changes, list) or not all(isinstance(one, dict) and "table" in one for one in changes):
        return None
    return changes


def values_of(change: Change) -> dict[str, Any]:
    """The columns that a change names, of the row's key and of what was set."""
    key, row = change.get("key"), change.get("row")
    return {**(key if isinstance(key, dict) else {}), **(row if isinstance(row, dict) else {})}


def changes_in(work: UnitOfWork, where: ColumnElement[bool] | None = None) -> Iterator[tuple[str, Change]]:
    """Every change in the log, or in the events that meet the condition, with the stream of its event."""
    after, upto, chosen = 0, last_position(work), true() if where is None else where
    while after < upto:
        query = select(_E.position, _E.stream_id, _E.data).where(chosen, _E.position > after).order_by(_E.position).limit(_LOOK)
        found = work.found(query, unreadable=OnUnreadable.LEAVE_OUT)
        for _, stream, data in found:
            for change in changes_of(data) or ():
                yield stream, change
        if len(found) < _LOOK:
            return
        after = found[-1][0]


def unreadable_events(work: UnitOfWork, tables: Sequence[Table]) -> int:
    """How many events cannot be read, in all streams in which rows of the tables may be."""
    after, upto, count = 0, last_position(work), 0
    carried: list[Unreadable] = [] if work.carried is None else work.carried
    while after < upto:
        positions = select(_E.position).where(_E.position > after).order_by(_E.position).limit(_LOOK)
        last = max((position for (position,) in work.found(positions)), default=upto)
        before = len(carried)
        work.found(select(_E.data).where(streams_of(tables), _E.position > after, _E.position <= last))
        after, count = last, count + len(carried) - before
    return count


def may_hold(tables: Sequence[Table], stream: object) -> bool:
    """Whether rows of the tables may be in the stream of that name."""
    rules = [rule for table in tables if (rule := place_of(table)) is not None]
    names = [(rule.shared, f"{rule.prefix}:" if rule.prefix else None) for rule in rules]
    return isinstance(stream, str) and any(stream == name or (prefix and stream.startswith(prefix)) for name, prefix in names)


def streams_of(tables: Sequence[Table]) -> ColumnElement[bool]:
    """The condition for events in all streams in which rows of the tables may be."""
    conditions: list[ColumnElement[bool]] = []
    for table in tables:
        rule = place_of(table)
        if rule is not None:
            conditions.append(_E.stream_id == rule.shared)
            if rule.prefix:
                conditions.append(_E.stream_id.startswith(f"{rule.prefix}:", autoescape=True))
    return or_(*conditions)


def stream_named(table: Table, row: Mapping[str, Any]) -> str | None:
    """The stream that the cells of a row name; None if they name none."""
    rule = place_of(table)
    value = None if rule is None or rule.column is None else row.get(rule.column)
    return None if rule is None or not isinstance(value, str) else rule.name(value)


def in_streams(streams: Sequence[str]) -> ColumnElement[bool]:
    """The condition for events in these streams."""
    return _E.stream_id.in_(streams)


def without(erased: Mapping[str, tuple[tuple[str, ...], set[Key]]]) -> Kept:
    """Keep changes of all rows but those whose key is erased, by table with the columns of the key."""

    def is_erased(change: Change) -> bool:
        found = erased.get(str(change["table"]))
        if found is None:
            return False
        columns, keys = found
        values = values_of(change)
        return tuple(values.get(column) for column in columns) in keys

    return lambda changes: [change for change in changes if not is_erased(change)]


def named_in(table: Table, stream: str, change: Change) -> dict[str, Any]:
    """The columns that a change names, with the one that its stream is named after, which a change of some columns leaves out."""
    rule = place_of(table)
    if rule is None or rule.column is None or (value := rule.value(stream)) is None:
        return values_of(change)
    return {rule.column: value, **values_of(change)}


def that_are_there(work: UnitOfWork, tables: Mapping[str, Table]) -> Kept:
    """Keep changes of rows that still exist in the tables."""

    def kept(changes: Sequence[Change]) -> Sequence[Change]:
        return [
            change
            for change in changes
            if (name := str(change["table"])) in tables and is_there(work, tables[name], values_of(change))
        ]

    return kept


def is_there(work: UnitOfWork, table: Table, values: Mapping[str, Any]) -> bool:
    """Whether a row of a table that a change names is there."""
    row = plain_rows(table).values({name: values.get(name) for name in key_of(table)})
    key = [table.c[name] == value for name, value in row.items()]
    return work.select(select(table.c[key_of(table)[0]]).where(*key)).first() is not None
