"""A stream as it stands, as an event: what the log begins with, and begins again with after it was off or was trimmed."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Table, bindparam, select

from persist.db.changes import Deed
from persist.db.hot import Hot
from persist.db.streaming import chunks
from persist.db.streams import key_of, parent, place_of
from persist.db.types import Label
from persist.db.work import Work
from persist.errors import InvalidValue
from persist.events.models import event_heads
from persist.events.schemas import ALL, SNAPSHOT, SNAPSHOT_CONTINUED, VERSION
from persist.events.writing import MOST_CHANGES, plain_rows

_ROWS = 200
_HEADS = Hot(select(event_heads.c.stream_id).where(event_heads.c.stream_id != ALL))
_stream = bindparam("stream", type_=Label())


def write_snapshots(work: Work, tables: Sequence[Table]) -> None:
    """Of every stream that has rows, or had events; shared ones first, since the others may point to what is there."""
    shared = {place.shared for table in tables if (place := place_of(table)) is not None}
    named = {stream for table in tables for stream in _named(work, table)}
    former = {stream for (stream,) in work.rows(_HEADS)}
    for stream in sorted(shared) + sorted((named | former) - shared):
        write_snapshot(work, stream, tables, empty=stream in former)


def write_snapshot(work: Work, stream: str, tables: Sequence[Table], *, empty: bool = True) -> None:
    """The rows of a stream as events, a thousand in each; one without rows only if `empty` says so."""
    kind = SNAPSHOT
    changes: list[dict[str, Any]] = []
    for change in _changes(work, stream, tables):
        if len(changes) == MOST_CHANGES:
            _tell(work, kind, stream, changes, more=True)
            kind, changes = SNAPSHOT_CONTINUED, []
        changes.append(change)
    if changes or empty:
        _tell(work, kind, stream, changes, more=False)


def _tell(work: Work, kind: str, stream: str, changes: list[dict[str, Any]], *, more: bool) -> None:
    data: dict[str, Any] = {"v": VERSION, "changes": changes}
    if more:
        data["more"] = True
    log = work.runtime.log
    assert log is not None, "a snapshot is written while the log is on"
    work.written += log.write(work, [Deed(kind, stream, data=data)])


def _changes(work: Work, stream: str, tables: Sequence[Table]) -> Iterator[dict[str, Any]]:
    for table in tables:
        place, plain = place_of(table), plain_rows(table)
        assert place is not None
        names = [str(column.name) for column in table.columns]
        seeds = table.info.get("seed", ())
        for query, value in _queries(work, table, stream):
            for rows in chunks(work, query, _ROWS, stream=value):
                for values in rows:
                    row = dict(zip(names, values, strict=True))
                    if row not in seeds:  # every database has those from the start
                        yield {"table": str(table.name), "op": "put", "row": plain.plain(row)}


def _queries(work: Work, table: Table, stream: str) -> Iterator[tuple[Hot, str]]:
    """The statements that find the rows of a stream in a table."""
    place = place_of(table)
    assert place is not None
    if stream == place.shared:
        shared = _shared_rows(table)
        if shared is not None:
            yield shared, stream
    value = stream if not place.prefix else stream.removeprefix(f"{place.prefix}:")
    if place.prefix and value == stream:
        return
    if place.column is None and place.through is None:
        return
    yield _rows_of(table), value
    if place.column is not None and work.runtime.scopes.get(place.column) == value:
        yield _rows_of(table), ""  # the file's own


@cache
def _rows_of(table: Table) -> Hot:
    place = place_of(table)
    assert place is not None
    query = select(*table.columns).order_by(*(table.c[name] for name in key_of(table)))
    if place.column is not None:
        return Hot(query.where(table.c[place.column] == _stream))
    assert place.through is not None
    above = parent(table, place.through)
    named = place_of(above)
    assert named is not None
    assert named.column is not None
    (link,) = [one for one in table.c[place.through].foreign_keys if one.column.table is above]
    return Hot(query.join(above, link.column == table.c[place.through]).where(above.c[named.column] == _stream))


@cache
def _shared_rows(table: Table) -> Hot | None:
    """Rows of no stream of their own."""
    place = place_of(table)
    assert place is not None
    query = select(*table.columns).order_by(*(table.c[name] for name in key_of(table)))
    if place.column is None:
        return Hot(query) if place.through is None else None
    column = table.c[place.column]
    return Hot(query.where(column.is_(None))) if column.nullable else None


@cache
def _names(table: Table) -> Hot | None:
    place = place_of(table)
    if place is None or place.column is None:
        return None
    column = table.c[place.column]
    return Hot(select(column).where(column.is_not(None)).distinct())


def _named(work: Work, table: Table) -> Iterator[str]:
    query, place = _names(table), place_of(table)
    if query is None or place is None or place.column is None:
        return
    for (value,) in work.rows(query):
        name = value or work.runtime.scopes.get(place.column, "")
        if name == ALL:
            raise InvalidValue(place.column, "'*' stands for all streams, and cannot be the name of one.")
        yield place.name(name)
