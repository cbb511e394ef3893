"""Deleting old events of a stream. A snapshot of the stream is written first, so that readers can begin there."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import bindparam, case, delete, func, literal, select, update

from persist.db.changes.event_streams import logged_tables
from persist.db.schema.column_types import EpochMs, Int64, Label
from persist.db.statements.prepared import Row, Statement
from persist.db.transactions.dry_run import left_alone
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable, is_unreadable
from persist.events.models import event_consumers, event_heads, event_log
from persist.events.schemas import ALL, SNAPSHOT, SNAPSHOT_CONTINUED
from persist.events.snapshots import check_snapshot, write_snapshot

_E, _H = event_log.c, event_heads.c
_stream, _upto = bindparam("stream", type_=Label()), bindparam("upto", type_=Int64())
_COUNT = Statement(select(_H.seq).where(_H.stream_id == ALL, _H.settled.is_(None)).with_for_update())
_keep = bindparam("keep", type_=Int64())
_LONGER = Statement(
    select(_H.stream_id).where(_H.stream_id != ALL, _H.seq - _keep >= _H.first_seq).order_by(_H.stream_id),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_waiting = _E.position > select(func.min(event_consumers.c.position)).scalar_subquery()
_first_waiting = select(func.min(_E.seq)).where(_E.stream_id == _stream, _waiting).scalar_subquery()
_place = select(_H.seq, _H.first_seq, _first_waiting).where(_H.stream_id == _stream)
_HEAD, _LOCK_HEAD = Statement(_place), Statement(_place.with_for_update())
_OLDER = Statement(
    select(func.max(_E.seq)).where(_E.stream_id == _stream, _E.at < bindparam("before", type_=EpochMs()), _E.seq <= _upto)
)
_is_snapshot = _E.type.in_([literal(SNAPSHOT), literal(SNAPSHOT_CONTINUED)])
_last_other = select(func.max(_E.seq)).where(_E.stream_id == _stream, ~_is_snapshot).scalar_subquery()
_last_snapshot = select(func.max(_E.seq)).where(_E.stream_id == _stream, _E.type == literal(SNAPSHOT)).scalar_subquery()
_SNAPSHOT = Statement(
    select(_last_snapshot, case((_last_other > _last_snapshot, _last_other))).where(_last_snapshot.is_not(None))
)
_COUNT_EVENTS = Statement(select(func.count()).select_from(event_log).where(_E.stream_id == _stream, _E.seq <= _upto))
_DELETE = Statement(delete(event_log).where(_E.stream_id == _stream, _E.seq <= _upto))
_FIRST = Statement(update(event_heads).where(_H.stream_id == _stream).values(first_seq=bindparam("first", type_=Int64())))


def lock_log(work: UnitOfWork) -> None:
    """Lock the count of all events, where it is used, before any stream's head: the order of locks that writers of events use."""
    work.row(_COUNT)


def streams(work: UnitOfWork, keep: int) -> list[str]:
    """Every stream that has more than `keep` events: of no other one `trim` would delete any."""
    return [stream for (stream,) in work.rows(_LONGER, keep=keep)]


def trim(work: UnitOfWork, stream: str, *, before: datetime | None, keep: int) -> int:
    """Delete events of a stream older than `before` (None: of any age) except its newest `keep`; the number deleted.

    Events that a consumer has not acknowledged stay: it would never see them. The log must be locked, so that none is added
    behind the back of the statement that looks for them. The lock of the stream's head does the same where positions come from
    a sequence.
    """
    head = work.row(_LOCK_HEAD, stream=stream)
    if head is None:
        return 0
    upto, is_snapshot_due = _end(work, stream, head, before, keep)
    if is_snapshot_due:
        write_snapshot(work, stream, logged_tables(work.runtime.tables()))
    if upto < head[1]:
        return 0
    work.run(_FIRST, stream=stream, first=upto + 1)
    return work.run(_DELETE, stream=stream, upto=upto)


def count_trimmed(work: UnitOfWork, stream: str, *, before: datetime | None, keep: int) -> int:
    """How many events `trim` would delete, without a lock. Raises UnreadableRow where it would delete none."""
    head = work.row(_HEAD, stream=stream)
    if head is None:
        return 0
    upto, is_snapshot_due = _end(work, stream, head, before, keep)
    if is_snapshot_due:
        check_snapshot(work, stream, logged_tables(work.runtime.tables()))
    counted = None if upto < head[1] else work.row(_COUNT_EVENTS, stream=stream, upto=upto)
    return 0 if counted is None else int(counted[0])


def _end(work: UnitOfWork, stream: str, head: Row, before: datetime | None, keep: int) -> tuple[int, bool]:
    """The last event that goes, and whether a snapshot must be written first. `head`: the row of _HEAD."""
    upto = head[0] - keep
    if before is not None:
        found = work.row(_OLDER, stream=stream, before=before, upto=upto)
        upto = found[0] if found is not None and found[0] is not None else 0
    if head[2] is not None and not is_unreadable(head[2]):  # an event whose number nobody can read is never deleted
        upto = min(upto, head[2] - 1)
    if work.runtime.log is None:
        return upto, False
    snapshot = work.row(_SNAPSHOT, stream=stream)
    if snapshot is not None and snapshot[1] is None:  # no event since the latest snapshot: keep it, as readers begin there
        return min(upto, snapshot[0] - 1), False
    return upto, upto >= head[1]


def trim_each(work: UnitOfWork, streams: Iterable[str], *, before: datetime | None, keep: int) -> int:
    """`trim` each stream; the number of events deleted. A stream with an unreadable row is left unchanged."""
    deleted = 0
    for stream in streams:
        with left_alone(work, f"the stream {stream}"):
            deleted += trim(work, stream, before=before, keep=keep)
    return deleted
