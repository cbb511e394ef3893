"""Upkeep of the event log: old events of a stream go after a snapshot of the stream is written.

The doctor names consumers that keep old events from being trimmed, and positions given twice. Unreadable cells are replaced so
that no number is missing or given twice. What the log says of erased rows is taken out by `persist/events/erasing.py`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, case, delete, exists, func, insert, literal, select, update

from persist.db.changes.journal import logged_tables
from persist.db.dialects.interface import Problem, Severity
from persist.db.operations.pruning import MOST_CANDIDATES, Cut, Pruning, Removed
from persist.db.operations.upkeep import Upkeep
from persist.db.schema.column_types import Int64, Label
from persist.db.schema.instants import EpochMs
from persist.db.statements.prepared import Row, Statement
from persist.db.transactions.snapshots import left_alone
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable, is_unreadable
from persist.errors import InvalidValue, PayloadTooLarge, UnreadableRow
from persist.events.first_snapshots import MARK, last_given
from persist.events.models import event_consumers, event_heads, event_log, event_positions
from persist.events.schemas import ALL, OTHER, SNAPSHOT, SNAPSHOT_CONTINUED, VERSION
from persist.events.snapshots import check_snapshot, write_snapshot
from persist.events.switching import is_on, take_positions

_E, _H = event_log.c, event_heads.c
_stream = bindparam("stream", type_=Label())
_upto = bindparam("upto", type_=Int64())
_LOCK_COUNTED = Statement(select(_H.seq).where(_H.stream_id == ALL, _H.settled.is_(None)).with_for_update())
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
    work.row(_LOCK_COUNTED)


def streams(work: UnitOfWork, keep: int) -> list[str]:
    """Every stream that has more than `keep` events: `trim` deletes nothing of any other stream."""
    return [stream for (stream,) in work.rows(_LONGER, keep=keep)]


def trim(work: UnitOfWork, stream: str, *, before: datetime | None, keep: int) -> int:
    """Delete events of a stream older than `before` (None: of any age) except its newest `keep`; the number deleted.

    Events that a consumer has not acknowledged stay: it would never see them. The log must be locked, so that none is added
    behind the back of the statement that looks for them. The lock of the stream's head does so for positions from a sequence.
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


_OLD = Statement(
    select(_H.stream_id)
    .where(
        _H.stream_id != ALL,
        _H.stream_id > bindparam("after", type_=Label()),
        exists().where(_E.stream_id == _H.stream_id, _E.seq == _H.first_seq, _E.at < bindparam("before", type_=EpochMs())),
    )
    .order_by(_H.stream_id)
    .limit(bindparam("maximum", type_=Int64()))
)


class OldEvents(Pruning):
    """Streams whose first event is older than the cut. `keep` counts events within each stream."""

    table = event_log
    batch = 1
    """One stream per transaction: writers of other streams never wait."""

    def next_candidates(self, work: UnitOfWork, cut: Cut, after: Row | None) -> list[Row]:
        return work.rows(_OLD, after="" if after is None else after[0], before=cut.before, maximum=MOST_CANDIDATES)

    def tally(self, work: UnitOfWork, cut: Cut, earlier: Sequence[Pruning]) -> Removed | None:
        counted, last = Removed(), None
        while found := self.next_candidates(work, cut, last):
            for (stream,) in found:
                with suppress(UnreadableRow, InvalidValue, PayloadTooLarge):  # such a stream is left as it is
                    counted.rows[event_log.name] += count_trimmed(work, stream, before=cut.before, keep=cut.keep)
            last = found[-1]
        return counted

    def remove(self, work: UnitOfWork, cut: Cut, found: Sequence[Row]) -> Removed:
        removed = Removed()
        lock_log(work)
        removed.rows[event_log.name] += trim_each(work, [stream for (stream,) in found], before=cut.before, keep=cut.keep)
        return removed


BEHIND = timedelta(days=7)
"""A consumer with an event of that age before it is behind."""

_C = event_consumers.c
# The consumer's next event, by the index of positions: an ungrouped min() of `at` would read all events after the position.
_next = select(_E.at).where(_E.position > _C.position).order_by(_E.position).limit(1).correlate(event_consumers).scalar_subquery()
_USED = Statement(
    select(func.coalesce(select(func.max(_E.position)).scalar_subquery(), 0), func.coalesce(func.max(_C.position), 0))
)
_WAITING = select(_C.name, _next.label("since")).order_by(_C.name)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """A finding for each consumer that is far behind, and for a sequence that gives positions which were given before."""
    numbers = work.row(_USED)
    if not work.runtime.dialect.one_writer and numbers is not None and last_given(work) < max(numbers):
        message = (
            "the next events would get positions that others have, and consumers would miss them, as after a logical copy of the "
            "database, which has no sequences: run `persist events on`."
        )
        yield Problem("positions_behind", Severity.ERROR, event_positions.name, message)
    mark = work.row(MARK)
    if work.runtime.dialect.one_writer and mark is not None and mark[0] is not None:
        message = "the positions of events are those of a server, as an older release imported them: nobody can read them here."
        yield Problem("positions_foreign", Severity.ERROR, event_heads.name, message, repair=take_positions)
    old = work.now() - BEHIND
    waiting: Iterable[Any] = work.found(_WAITING, unreadable=OnUnreadable.LEAVE_OUT)
    for name, since in waiting:
        if since is not None and since < old:
            message = (
                f"it has not acknowledged events since {since:%Y-%m-%d %H:%M} UTC, which no trim deletes meanwhile: "
                "start what consumes them, or remove it."
            )
            yield Problem("consumer_behind", Severity.WARNING, f"consumer {name}", message)


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


UPKEEP = Upkeep(
    prunings=(OldEvents(),),
    checkup=checkup,
    stand_ins={
        _E.data: _nothing_changed,
        _E.type: _other,
        _E.at: _now,
        _E.seq: _next_in_stream,
        _H.seq: _last_given,
        _H.first_seq: _first_kept,
        _H.logging: _logging,
        _H.settled: _settled,
    },
)
