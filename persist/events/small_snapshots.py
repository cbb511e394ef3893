"""Snapshots of many small streams at once: their rows are read by one statement for each table."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Table, delete, select

from persist.db.changes.event_streams import key_of, place_of
from persist.db.changes.journal import VerbChanges
from persist.db.schema.arrays import among_labels
from persist.db.statements.prepared import Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.events.models import event_heads
from persist.events.schemas import SNAPSHOT
from persist.events.snapshots import LOCK_HEAD, by_stream, snapshot_changes, snapshot_data
from persist.events.writing import MAX_CHANGES

_H = event_heads.c
_HEADS = Statement(select(_H.stream_id, _H.seq).where(among_labels(_H.stream_id, "streams")))
_FORGET_UNUSED = Statement(delete(event_heads).where(among_labels(_H.stream_id, "streams"), _H.seq == 0))


def write_together(work: UnitOfWork, streams: Sequence[str], tables: Sequence[Table]) -> bool:
    """Write the snapshots of these streams, whose writers wait. False: nothing is written, since they have too many rows."""
    work.run_many(LOCK_HEAD, [{"stream_id": stream} for stream in sorted(streams)])
    changes = _changes(work, streams, tables)
    if changes is not None:
        heads = dict(map(tuple, work.rows(_HEADS, streams=list(streams))))
        written = [stream for stream in streams if changes[stream] or heads.get(stream)]
        log = work.runtime.log
        assert log is not None, "a snapshot is written while the log is on"
        work.events.written += log.write(
            work, [VerbChanges(SNAPSHOT, stream, data=snapshot_data(changes[stream])) for stream in written]
        )
    work.run(_FORGET_UNUSED, streams=list(streams))
    return changes is not None


def _changes(work: UnitOfWork, streams: Sequence[str], tables: Sequence[Table]) -> defaultdict[str, list[dict[str, Any]]] | None:
    """The rows of each stream; None if there are more of all than one event holds."""
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    left = MAX_CHANGES
    for table in tables:
        rule = place_of(table)
        assert rule is not None
        values = {value: stream for stream in streams if (value := rule.value(stream)) is not None}
        if not values or (rule.column is None and rule.through is None):
            continue
        if rule.column is not None and work.runtime.scopes.get(rule.column) in values:
            return None  # rows of a single-owner file, which have an empty scope column
        rows = work.rows(_rows_among(table), streams=list(values))
        left -= len(rows)
        if left < 0:
            return None
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
