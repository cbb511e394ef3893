"""Letting go of old events. What the stream holds is written as a snapshot first, so that a reader can begin there."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import bindparam, case, delete, func, literal, select, update

from persist.db.hot import Hot
from persist.db.spoilt import Spoilt
from persist.db.streams import logged_tables
from persist.db.trial import left_alone
from persist.db.types import EpochMs, Label, Whole
from persist.db.work import Work
from persist.events.models import event_heads, event_log
from persist.events.schemas import ALL, SNAPSHOT, SNAPSHOT_CONTINUED
from persist.events.snapshots import write_snapshot

_E, _H = event_log.c, event_heads.c
_stream, _upto = bindparam("stream", type_=Label()), bindparam("upto", type_=Whole())
_COUNT = Hot(select(_H.seq).where(_H.stream_id == ALL).with_for_update())
_HEADS = Hot(select(_H.stream_id).where(_H.stream_id != ALL).order_by(_H.stream_id), spoilt=Spoilt.LEAVE_OUT)
_HEAD = Hot(select(_H.seq, _H.first_seq).where(_H.stream_id == _stream).with_for_update())
_OLDER = Hot(
    select(func.max(_E.seq)).where(_E.stream_id == _stream, _E.at < bindparam("before", type_=EpochMs()), _E.seq <= _upto)
)
_is_snapshot = _E.type.in_([literal(SNAPSHOT), literal(SNAPSHOT_CONTINUED)])
_last_other = select(func.max(_E.seq)).where(_E.stream_id == _stream, ~_is_snapshot).scalar_subquery()
_last_snapshot = select(func.max(_E.seq)).where(_E.stream_id == _stream, _E.type == literal(SNAPSHOT)).scalar_subquery()
_SNAPSHOT = Hot(select(_last_snapshot, case((_last_other > _last_snapshot, _last_other))).where(_last_snapshot.is_not(None)))
_DELETE = Hot(delete(event_log).where(_E.stream_id == _stream, _E.seq <= _upto))
_FIRST = Hot(update(event_heads).where(_H.stream_id == _stream).values(first_seq=bindparam("first", type_=Whole())))


def lock_log(work: Work) -> None:
    """Before any stream's count: in the order of whoever writes events."""
    work.row(_COUNT)


def streams(work: Work) -> list[str]:
    """Every stream that has, or had, events."""
    return [stream for (stream,) in work.rows(_HEADS)]


def trim(work: Work, stream: str, *, before: datetime | None, keep: int) -> int:
    """Delete the events of a stream that are older than `before` and not among its newest `keep`; how many."""
    head = work.row(_HEAD, stream=stream)
    if head is None:
        return 0
    upto = head[0] - keep
    if before is not None:
        found = work.row(_OLDER, stream=stream, before=before, upto=upto)
        upto = found[0] if found is not None and found[0] is not None else 0
    if work.runtime.log is not None:
        snapshot = work.row(_SNAPSHOT, stream=stream)
        if snapshot is not None and snapshot[1] is None:  # nothing happened since: this is where readers begin
            upto = min(upto, snapshot[0] - 1)
        elif upto >= head[1]:
            write_snapshot(work, stream, logged_tables(work.runtime.tables()))
    if upto < head[1]:
        return 0
    work.run(_FIRST, stream=stream, first=upto + 1)
    return work.run(_DELETE, stream=stream, upto=upto)


def trim_each(work: Work, streams: Iterable[str], *, before: datetime | None, keep: int) -> int:
    """The same of many; one with a row that cannot be read stays as it is."""
    gone = 0
    for stream in streams:
        with left_alone(work, f"the stream {stream}"):
            gone += trim(work, stream, before=before, keep=keep)
    return gone
