"""Snapshots: all rows of a stream as an event. One begins the log, and one follows when it was off or was trimmed."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, bindparam, delete, select

from persist.db.changes.batch import Pending
from persist.db.changes.journal import VerbChanges, key_of, parent, place_of
from persist.db.expressions.upsert import merge
from persist.db.schema.column_types import Label, among_labels
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork, chunks
from persist.db.unreadable.cells import OnUnreadable, error_of, is_unreadable
from persist.errors import InvalidValue, UnreadableRow
from persist.events.models import event_heads
from persist.events.schemas import ALL, SNAPSHOT, SNAPSHOT_CONTINUED, VERSION
from persist.events.writing import MAX_CHANGES, plain_rows

_ROWS = 200
_HEADS = Statement(select(event_heads.c.stream_id).where(event_heads.c.stream_id != ALL))
_stream = bindparam("stream", type_=Label())
LOCK_HEAD = Statement(merge(event_heads, "stream_id", seq="sum").values(stream_id=param("stream_id"), seq=0))
_HEAD = Statement(select(event_heads.c.seq).where(event_heads.c.stream_id == _stream))
_FORGET_UNUSED = Statement(delete(event_heads).where(event_heads.c.stream_id == _stream, event_heads.c.seq == 0))


def every_stream(
    work: UnitOfWork, tables: Sequence[Table], refused: list[UnreadableRow] | None = None
) -> tuple[set[str], set[str]]:
    """The streams that have rows or had events: shared ones, whether they do or not, and others.

    Shared ones come first in snapshots: rows of others may refer to theirs. A stream whose name cannot be read is left out, and
    its error added to `refused`; without this list it is raised.
    """
    shared = {rule.shared for table in tables if (rule := place_of(table)) is not None}
    errors: list[UnreadableRow] = [] if refused is None else refused
    stream_names = {stream for table in tables for stream in _stream_names(work, table, errors)}
    if refused is None and errors:
        raise errors[0]
    return shared, (stream_names | {stream for (stream,) in work.rows(_HEADS)}) - shared


def write_snapshots(work: UnitOfWork, tables: Sequence[Table]) -> None:
    """Write a snapshot of every stream that has rows or had events."""
    shared, others = every_stream(work, tables)
    with_head = {stream for (stream,) in work.rows(_HEADS)}
    for stream in sorted(shared) + sorted(others):
        write_snapshot(work, stream, tables, empty=stream in with_head)


def write_locked_snapshot(work: UnitOfWork, stream: str, tables: Sequence[Table]) -> None:
    """Write the snapshot of a stream while others write to it: they wait for its head, if only for their numbers."""
    work.run(LOCK_HEAD, stream_id=stream)
    head = work.row(_HEAD, stream=stream)
    assert head is not None
    write_snapshot(work, stream, tables, empty=head[0] > 0)
    work.run(_FORGET_UNUSED, stream=stream)


def write_snapshot(work: UnitOfWork, stream: str, tables: Sequence[Table], *, empty: bool = True) -> None:
    """Write the rows of a stream as events of at most a thousand. Without rows, an event is written only if `empty`."""
    kind = SNAPSHOT
    changes: list[dict[str, Any]] = []
    for change in _changes(work, stream, tables):
        if len(changes) == MAX_CHANGES:
            _write_event(work, kind, stream, changes, more=True)
            kind, changes = SNAPSHOT_CONTINUED, []
        changes.append(change)
    if changes or empty:
        _write_event(work, kind, stream, changes, more=False)


def check_snapshot(work: UnitOfWork, stream: str, tables: Sequence[Table]) -> None:
    """Read the rows that a snapshot of the stream is made of. Raises UnreadableRow where it could not be written."""
    for _ in _changes(work, stream, tables):
        pass


def _write_event(work: UnitOfWork, kind: str, stream: str, changes: list[dict[str, Any]], *, more: bool) -> None:
    data = snapshot_data(changes)
    if more:
        data["more"] = True
    log = work.runtime.log
    assert log is not None, "a snapshot is written while the log is on"
    work.events.written += log.write(work, [VerbChanges(kind, stream, data=data)])


def snapshot_data(changes: list[dict[str, Any]]) -> dict[str, Any]:
    """What the event of a snapshot holds."""
    return {"v": VERSION, "changes": changes}


def _changes(work: UnitOfWork, stream: str, tables: Sequence[Table]) -> Iterator[dict[str, Any]]:
    for table in tables:
        for query, value in _queries(work, table, stream):
            for rows in chunks(work, query, _ROWS, stream=value):
                for values in rows:
                    yield from snapshot_changes(table, values)


def snapshot_changes(table: Table, values: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """The change that stands for a row in a snapshot. None for a seed row: every new database contains it."""
    row = dict(zip(_names(table), values, strict=True))
    if row not in table.info.get("seed", ()):
        yield {"table": str(table.name), "op": "put", "row": plain_rows(table).plain(row)}


@cache
def _names(table: Table) -> list[str]:
    return [str(column.name) for column in table.columns]


def _queries(work: UnitOfWork, table: Table, stream: str) -> Iterator[tuple[Statement, str]]:
    """(statement, value of its parameter `stream`) for each query that finds rows of a stream in a table."""
    rule = place_of(table)
    assert rule is not None
    if stream == rule.shared:
        shared = _shared_rows(table)
        if shared is not None:
            yield shared, stream
    value = stream if not rule.prefix else stream.removeprefix(f"{rule.prefix}:")
    if rule.prefix and value == stream:
        return
    if rule.column is None and rule.through is None:
        return
    yield _rows_of(table), value
    if rule.column is not None and work.runtime.scopes.get(rule.column) == value:
        yield _rows_of(table), ""  # rows of a single-owner file, which have an empty scope column


def _raising(query: Select[Any]) -> Statement:
    """A snapshot lacks no row: one that cannot be read is named by an error."""
    return Statement(query, unreadable=OnUnreadable.RAISE)


@cache
def _rows_of(table: Table) -> Statement:
    query, column = by_stream(table)
    return _raising(query.where(column == _stream).order_by(*(table.c[name] for name in key_of(table))))


def by_stream(table: Table) -> tuple[Select[Any], ColumnElement[Any]]:
    """A SELECT of a table's rows, and the column that names the stream of each."""
    rule, query = place_of(table), select(*table.columns)
    assert rule is not None
    if rule.column is not None:
        return query, table.c[rule.column]
    assert rule.through is not None
    parent_table = parent(table, rule.through)
    parent_rule = place_of(parent_table)
    assert parent_rule is not None
    assert parent_rule.column is not None
    (link,) = [one for one in table.c[rule.through].foreign_keys if one.column.table is parent_table]
    return query.join(parent_table, link.column == table.c[rule.through]), parent_table.c[parent_rule.column]


@cache
def _shared_rows(table: Table) -> Statement | None:
    """The SELECT of a table's rows in its shared stream; None if the table has no such rows."""
    rule = place_of(table)
    assert rule is not None
    query = select(*table.columns).order_by(*(table.c[name] for name in key_of(table)))
    if rule.column is None:
        return _raising(query) if rule.through is None else None
    column = table.c[rule.column]
    return _raising(query.where(column.is_(None))) if column.nullable else None


@cache
def _names_query(table: Table) -> Statement | None:
    rule = place_of(table)
    if rule is None or rule.column is None:
        return None
    column = table.c[rule.column]
    return Statement(select(column).where(column.is_not(None)).distinct())


def _stream_names(work: UnitOfWork, table: Table, refused: list[UnreadableRow]) -> Iterator[str]:
    query, rule = _names_query(table), place_of(table)
    if query is None or rule is None or rule.column is None:
        return
    for (value,) in work.rows(query):
        if is_unreadable(value):
            refused.append(error_of(value))
            continue
        name = value or work.runtime.scopes.get(rule.column, "")
        if name == ALL:
            raise InvalidValue(rule.column, "'*' stands for all streams, and cannot be the name of one.")
        yield rule.name(name)


# Snapshots of many small streams at once: their rows are read by one statement for each table.

_H = event_heads.c
_HEADS_AMONG = Statement(select(_H.stream_id, _H.seq).where(among_labels(_H.stream_id, "streams")))
_FORGET_UNUSED_AMONG = Statement(delete(event_heads).where(among_labels(_H.stream_id, "streams"), _H.seq == 0))


def write_together(work: UnitOfWork, streams: Sequence[str], tables: Sequence[Table]) -> bool:
    """Write the snapshots of these streams, whose writers wait. False: nothing is written, since they have too many rows."""
    work.run_many(LOCK_HEAD, [{"stream_id": stream} for stream in sorted(streams)])
    changes = _changes_among(work, streams, tables)
    if changes is not None:
        heads = dict(map(tuple, work.rows(_HEADS_AMONG, streams=list(streams))))
        written = [stream for stream in streams if changes[stream] or heads.get(stream)]
        log = work.runtime.log
        assert log is not None, "a snapshot is written while the log is on"
        work.events.written += log.write(
            work, [VerbChanges(SNAPSHOT, stream, data=snapshot_data(changes[stream])) for stream in written]
        )
    work.run(_FORGET_UNUSED_AMONG, streams=list(streams))
    return changes is not None


def _changes_among(
    work: UnitOfWork, streams: Sequence[str], tables: Sequence[Table]
) -> defaultdict[str, list[dict[str, Any]]] | None:
    """The rows of each stream; None if there are more of all than one event holds."""
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    answers: list[tuple[Table, dict[str, str], Pending[list[Row]]]] = []
    with work.batch() as batch:
        for table in tables:
            rule = place_of(table)
            assert rule is not None
            values = {value: stream for stream in streams if (value := rule.value(stream)) is not None}
            if not values or (rule.column is None and rule.through is None):
                continue
            if rule.column is not None and work.runtime.scopes.get(rule.column) in values:
                return None  # rows of a single-owner file, which have an empty scope column
            answers.append((table, values, batch.rows(_rows_among(table), streams=list(values))))
    if sum(len(answer.result) for _, _, answer in answers) > MAX_CHANGES:
        return None
    for table, values, answer in answers:
        rows = list(answer.result)
        keys = [index for index, column in enumerate(table.columns) if column.name in key_of(table)]
        rows.sort(key=lambda row: [(row[key] is not None, row[key]) for key in keys])  # it is called at once
        for *row, value in rows:
            found[values[value]] += snapshot_changes(table, row)
    return found


@cache
def _rows_among(table: Table) -> Statement:
    """At most one row more than an event holds. Unsorted: a database might read the whole table in the order of its key."""
    query, column = by_stream(table)
    query = query.add_columns(column.label("of_stream")).where(among_labels(column, "streams")).limit(MAX_CHANGES + 1)
    return Statement(query, unreadable=OnUnreadable.RAISE)
