"""Replacements for unreadable cells of the event log, chosen so that no number is missing or given twice."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, func, insert, select

from persist.db.changes.event_streams import logged_tables
from persist.db.schema.column_types import Int64, Label
from persist.db.statements.prepared import Statement
from persist.db.transactions.stand_ins import StandIns
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.events.models import event_heads, event_log
from persist.events.schemas import ALL, OTHER, VERSION
from persist.events.snapshots import write_snapshot
from persist.events.switching import is_on
from persist.events.trimming import lock_log

_E, _H = event_log.c, event_heads.c
_stream = bindparam("stream", type_=Label())
_BEFORE = Statement(select(func.max(_E.seq)).where(_E.stream_id == _stream, _E.position < bindparam("at", type_=Int64())))
_LAST = Statement(select(func.max(_E.seq), func.min(_E.seq)).where(_E.stream_id == _stream))
_LAST_OF_ALL = Statement(select(func.max(_E.position), func.min(_E.position)))
_FIRST_KEPT = Statement(select(_H.first_seq).where(_H.stream_id == _stream))
_UNCOUNTED = Statement(
    select(_E.stream_id, func.max(_E.seq), func.min(_E.seq))
    .where(_E.stream_id.not_in(select(_H.stream_id)))
    .group_by(_E.stream_id)
    .order_by(_E.stream_id)
)
_ADD = Statement(insert(event_heads))


def _nothing_changed(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace an event's data by no changes. Replays miss them, so while the log is on the stream gets a snapshot of its rows."""
    if work.journal is not None and isinstance(row.get("stream_id"), str):
        lock_log(work)
        write_snapshot(work, row["stream_id"], logged_tables(work.runtime.tables()))
    return {"data": {"v": VERSION, "changes": []}}


def _other(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": OTHER}


def _now(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"at": work.now()}


def _next_in_stream(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The next `seq` after the stream's event before this position: numbers have no gaps and follow positions."""
    before, first = work.row(_BEFORE, stream=row["stream_id"], at=row["position"]), work.row(_FIRST_KEPT, stream=row["stream_id"])
    if before is not None and before[0] is not None:
        return {"seq": before[0] + 1}
    return {"seq": first[0] if first is not None else 1}


def _last_given(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _span(work, row["stream_id"])
    return {"seq": row.get("first_seq", 1) - 1 if found[0] is None else found[0]}


def _first_kept(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _span(work, row["stream_id"])
    return {"first_seq": row.get("seq", 0) + 1 if found[1] is None else 1 if row["stream_id"] == ALL else found[1]}


def _logging(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"logging": row["stream_id"] != ALL or is_on(work)}


def _settled(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """NULL where positions are counted, or else the beginning: it moves on with the next commit."""
    return {"settled": None if work.runtime.dialect.one_writer or row["stream_id"] != ALL or not is_on(work) else 0}


def _span(work: UnitOfWork, stream: str) -> tuple[int | None, int | None]:
    found = work.row(_LAST_OF_ALL) if stream == ALL else work.row(_LAST, stream=stream)
    return (None, None) if found is None else (found[0], found[1])


def count_again(work: UnitOfWork) -> None:
    """Insert missing head rows, counted from the events of their streams."""
    for stream, last, first in work.rows(_UNCOUNTED):
        work.run(_ADD, stream_id=stream, seq=last, first_seq=first, logging=True, settled=None)
    last, _ = _span(work, ALL)
    if work.row(_FIRST_KEPT, stream=ALL) is None and (last is not None or is_on(work)):
        settled = _settled(work, {"stream_id": ALL})
        work.run(_ADD, stream_id=ALL, seq=last or 0, first_seq=1, logging=is_on(work), **settled)


STAND_INS: StandIns = {
    _E.data: _nothing_changed,
    _E.type: _other,
    _E.at: _now,
    _E.seq: _next_in_stream,
    _H.seq: _last_given,
    _H.first_seq: _first_kept,
    _H.logging: _logging,
    _H.settled: _settled,
}
