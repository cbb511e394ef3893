"""The snapshots that follow switching the log on: one of each stream, while others write.

Small streams get theirs together, a large one and one that many writers share alone. `_meta` says how far they are, so that a
switch that was killed is gone on with.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Table, Text, delete, func, literal, select, update

from persist.db.changes.batch import Batch
from persist.db.changes.journal import place_of
from persist.db.concurrency.worker_threads import Timer
from persist.db.expressions.positions import commits_asynchronously, is_snapshot, last_position, settled_position
from persist.db.expressions.upsert import upsert
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.notifier import Outage
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_transaction
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import PersistError, StoreBusy, UnreadableRow
from persist.events.models import event_heads, event_log, event_positions
from persist.events.schemas import ALL, Event
from persist.events.snapshots import every_stream, write_locked_snapshot, write_together

# Up to which position the events can be read, and telling the readers that it moved on.
#
# A position is settled once the transaction that took it has ended. An event is read as one of all streams only if all smaller
# positions are settled, so that nobody who goes on after it misses one. What is settled is found out in three ways: the mark in
# the row of `*`, which the writers' processes move now and then; positions without a gap from there on; and a look at the locks
# of running writers, for statements that begin after it.

_EVERY = 0.05
"""Seconds between two notices of one process."""
_MARK_EVERY = 1.0
"""Seconds between two moves of the mark by one process. Readers can do without it; it spares them to look far."""

_H = event_heads.c
# Statements about the sequence name no table: on a distributed server they would run where the table is, without the sequence.
_ENDS = Statement(select(_H.settled, _H.seq).where(_H.stream_id == ALL))
_SETTLED = Statement(select(settled_position(event_positions)))
_LAST = Statement(select(last_position(event_positions)))
_IS_SNAPSHOT = Statement(select(is_snapshot()))
MARK = Statement(select(_H.settled).where(_H.stream_id == ALL))
"""The position up to which all are settled in the snapshot; None if all are."""

_LOOK = Statement(select(settled_position(event_positions), last_position(event_positions), commits_asynchronously()))
_free_row = select(_H.stream_id).where(_H.stream_id == ALL, _H.settled < param("upto")).with_for_update(skip_locked=True)
_MOVE = Statement(update(event_heads).where(_H.stream_id.in_(_free_row)).values(settled=param("upto")))


def settled_part(events: Sequence[Event], upto: int) -> list[Event]:
    """The events of all streams up to that position, and those that follow without a gap: no other one can come between them."""
    for place, event in enumerate(events):
        if event.position > upto + 1:
            return list(events[:place])
        upto = max(upto, event.position)
    return list(events)


class Settler:
    """Moves the mark after commits, and notifies the readers in other processes, from the store's timer and at most every 50 ms.

    A NOTIFY inside of the writers' transactions would hold a lock of the whole server while they commit.
    """

    def __init__(self, runtime: Runtime, timer: Timer) -> None:
        self._runtime, self._timer = runtime, timer
        self._changed = False
        self._sent_at = self._marked_at = 0.0
        self._unmarked = False
        """Whether events are not settled yet, or settled beyond the mark."""
        self._outage = Outage(runtime.errors, "readers in other processes cannot be notified")
        self.due: float | None = None

    def __call__(self) -> None:
        """Notify soon: a transaction with events has ended."""
        self._runtime.wake_watchers()
        if not self._changed:
            self._changed = True
            self._look_at(max(time.monotonic(), self._sent_at + _EVERY))

    def on_timer(self, now: float) -> None:
        self.due = None
        self._flush(mark=self._marked_at + _MARK_EVERY <= now)
        if self._unmarked:
            self._look_at(max(now, self._marked_at) + _MARK_EVERY)

    def flush(self) -> None:
        """Notify, and move the mark now: the store is about to close."""
        self._flush(mark=True)

    def _flush(self, *, mark: bool) -> None:
        changed, self._changed = self._changed, False
        self._unmarked = self._unmarked or changed
        if not changed and not (mark and self._unmarked):
            return
        self._sent_at = time.monotonic()
        try:
            in_transaction(self._runtime, partial(self._tell, mark=mark), holds_store=False)
            self._outage.is_over()
        except PersistError as error:
            self._outage.failed(error)
            self._changed = self._changed or changed
            self._look_at(self._sent_at + self._outage.pause())

    def _look_at(self, due: float) -> None:
        if self.due is None or due < self.due:
            self.due = due
            self._timer.watch(self)

    def _tell(self, work: UnitOfWork, *, mark: bool) -> None:
        notify = self._runtime.dialect.event_log.notify
        assert notify is not None, "a database without sequences notices its changes by itself"
        with work.batch() as batch:
            found, place = batch.row(_LOOK), batch.row(MARK)
        list(work.select(select(notify(literal("", Text())))))
        if mark and found.result is not None:
            settled, last, _ = found.result
            marked = None if place.result is None else place.result[0]
            if marked is not None and settled > marked:
                work.run(_MOVE, upto=settled)
            self._unmarked, self._marked_at = marked is not None and settled < last, self._sent_at


class PositionQuery:
    """A look at the positions, sent with a batch: the last settled position, for later statements, or the last `given`."""

    def __init__(self, batch: Batch, *, given: bool = False) -> None:
        self._counter, self._found = batch.row(_ENDS), batch.row(_LAST if given else _SETTLED)

    @property
    def position(self) -> int:
        """The last position that was found, once the block of the batch was left; 0 for none."""
        counter, found = self._counter.result, self._found.result
        if counter is None or found is None:
            return 0
        return int(counter[1] if counter[0] is None else found[0])


def sees_commits(work: UnitOfWork) -> bool:
    """Whether later statements of the transaction see what others have committed: a caller's may go by one snapshot."""
    if work.runtime.dialect.one_writer or (work.runtime.owns_engine and not work.joined):
        return True
    found = work.row(_IS_SNAPSHOT)
    return found is not None and not found[0]


def settled_now(work: UnitOfWork) -> int:
    """The last settled position, for statements that begin later; 0 for an empty log."""
    with work.batch() as batch:
        asked = PositionQuery(batch)
    return asked.position


def last_given(work: UnitOfWork) -> int:
    """The last position that was given, to a transaction that may still run or was rolled back; 0 for none."""
    with work.batch() as batch:
        asked = PositionQuery(batch, given=True)
    return asked.position


Run = Callable[[Callable[[UnitOfWork], Any]], Any]
"""Runs a step in a new transaction, and returns its result."""

Tell = Callable[[int, int], object]
Place = tuple[str, str]
"""Where among the streams one is, which sorts as its snapshots are written, and its name."""

SNAPSHOTS = "events_snapshots"
"""The key of `_meta` that says how far the snapshots are; see Progress."""
LEFT = "events_snapshots_left"
"""The key of `_meta` for the places of the streams that have no snapshot yet because one of their rows cannot be read."""
PATIENCE = 60.0
"""Seconds for which a step is tried again that would have kept other writers waiting."""
_TOGETHER = 50
"""Small streams whose snapshots are written in one transaction: their writers wait for it."""
_GIVES_WAY = 0.05
"""Seconds at most for which a file is left to other writers between two transactions, each as long as the one before it."""
_SHARED, _OTHER = "0", "1"

_meta = table_of(Meta)
NOTE = Statement(upsert(_meta, "key"))
FORGET = Statement(delete(_meta).where(_meta.c.key == param("row_key")))
LAST = Statement(select(func.coalesce(func.max(event_log.c.position), 0)))
_LEFT = Statement(select(_meta.c.value).where(_meta.c.key == LEFT))
_PROGRESS = Statement(select(_meta.c.value).where(_meta.c.key == SNAPSHOTS))
_PROGRESS_LOCKED = Statement(select(_meta.c.value).where(_meta.c.key == SNAPSHOTS).with_for_update())


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the snapshots are that follow switching the log on.

    since    the position after which every change of a row is an event
    after    where among the streams the last one is of which there is a snapshot; empty before the first
    streams  how many streams have been looked at
    upto     the position of the last snapshot once all are written; None before
    """

    since: int
    after: str = ""
    streams: int = 0
    upto: int | None = None


def write_missing(run: Run, tables: Sequence[Table], tell: Tell | None) -> None:
    """Write the snapshots that are missing. Several processes may do so at once.

    A row that cannot be read keeps back the snapshot of its stream alone. UnreadableRow is raised after the others are written.
    """
    if run(progress_of).since == 0:
        last = run(lambda work: work.row(LAST))[0]
        deadline = time.monotonic() + PATIENCE
        while run(settled_now) < last:  # a writer without the log may still be on its way
            if time.monotonic() > deadline:
                raise StoreBusy(PATIENCE, "another transaction has written events and goes on")
            time.sleep(0.01)
        run(lambda work: _locked_note(work, lambda old: Progress(since=last, after=old.after, streams=old.streams)))
    refused: list[UnreadableRow] = []
    left, before = _places(run, tables, refused), run(progress_of)
    done = 0 if before is None else before.streams
    total, gives_way = done + len(left), run(lambda work: work.runtime.dialect.one_writer)
    for group in _groups(left):
        if tell is not None:
            tell(done, total)
        began = time.monotonic()
        if not _write_group(run, group, tables, refused):
            return
        done += len(group)
        if gives_way:  # who waits for the lock of the whole file asks for it now and then, and would always find it taken
            time.sleep(min(time.monotonic() - began, _GIVES_WAY))
    if refused:
        raise refused[0]
    run(_finish)


def _places(run: Run, tables: Sequence[Table], refused: list[UnreadableRow]) -> list[Place]:
    """The streams that are left, in the order of their snapshots. An error is added for a stream whose name cannot be read."""
    shared, others = run(lambda work: every_stream(work, tables, refused))
    places = [(_SHARED + stream, stream) for stream in sorted(shared)] + [(_OTHER + stream, stream) for stream in sorted(others)]
    progress, left = run(progress_of), run(_left)
    if progress is None:  # the log is off
        return places
    return [] if progress.upto is not None else [found for found in places if found[0] > progress.after or found[0] in left]


@dataclass(frozen=True, slots=True)
class KindToWrite:
    """How many streams of one kind are to get a snapshot, and how many rows the kind has. `kind`: its shared stream."""

    kind: str
    streams: int
    rows: int


def still_to_write(work: UnitOfWork, tables: Sequence[Table]) -> list[KindToWrite]:
    """What switching the log on has to write, by kind: all streams, or those that are left. It counts every row."""
    rows, streams, shared = Counter[str](), Counter[str](), set[str]()
    places = [(table, rule) for table in tables if (rule := place_of(table)) is not None]
    rules = sorted((rule for _, rule in places), key=lambda rule: not rule.prefix)
    for table, rule in places:
        named: ColumnElement[int] = literal(0) if rule.column is None else func.count(table.c[rule.column])
        counts: Any = work.select(select(func.count(), named).select_from(table)).one()
        count, of_streams = counts[0] - len(table.info.get("seed", ())), counts[1]
        rows[rule.shared] += count
        if rule.through is None and of_streams < count:
            shared.add(rule.shared)
    for place, stream in _places(lambda step: step(work), tables, []):
        if place.startswith(_OTHER) or stream in shared:
            streams[next(rule.shared for rule in rules if stream == rule.shared or rule.value(stream) is not None)] += 1
    return [KindToWrite(kind, streams[kind], rows[kind]) for kind in sorted(streams)]


def _groups(places: Sequence[Place]) -> Iterator[Sequence[Place]]:
    alone = sum(place.startswith(_SHARED) for place, _ in places)
    yield from ([place] for place in places[:alone])
    yield from (places[at : at + _TOGETHER] for at in range(alone, len(places), _TOGETHER))


def _write_group(run: Run, group: Sequence[Place], tables: Sequence[Table], refused: list[UnreadableRow]) -> bool:
    """Write the snapshots of these streams together; if a row cannot be read, one by one. False: another process has finished."""
    if len(group) > 1:
        try:
            if (written := run(partial(_write, group=group, tables=tables))) is not None:
                return bool(written)
        except UnreadableRow:
            pass  # which of them has the row is found below
    for one in group:
        try:
            if not run(partial(_write, group=[one], tables=tables)):
                return False
        except UnreadableRow as error:
            refused.append(error)
            run(partial(_leave, place=one[0]))
    return True


def _write(work: UnitOfWork, group: Sequence[Place], tables: Sequence[Table]) -> bool | None:
    """Write the snapshots that are missing of these streams. False: all are written. None: they are too large to go together."""
    progress = _locked(work)
    if progress is None or progress.upto is not None:
        return False
    left = _left(work)
    missing = [(place, stream) for place, stream in group if place > progress.after or place in left]
    if not missing:
        return True
    if len(group) == 1:
        write_locked_snapshot(work, missing[0][1], tables)
    elif not write_together(work, [stream for _, stream in missing], tables):
        return None
    places = [place for place, _ in missing]
    note_progress(work, Progress(progress.since, max(*places, progress.after), progress.streams + len(missing)))
    _note_left(work, left, left.difference(places))
    return True


def _leave(work: UnitOfWork, place: str) -> None:
    """Go on behind a stream whose snapshot cannot be written; the next switch tries it again."""
    progress = _locked(work)
    if progress is not None and progress.upto is None:
        note_progress(work, Progress(progress.since, max(place, progress.after), progress.streams))
        left = _left(work)
        _note_left(work, left, left | {place})


def _left(work: UnitOfWork) -> frozenset[str]:
    row = work.row(_LEFT)
    return frozenset(() if row is None else json.loads(row[0]))


def _note_left(work: UnitOfWork, before: frozenset[str], left: frozenset[str]) -> None:
    if left == before:
        return
    if left:
        work.run(NOTE, key=LEFT, value=json.dumps(sorted(left)))
    else:
        work.run(FORGET, row_key=LEFT)


def _finish(work: UnitOfWork) -> None:
    last = work.row(LAST)
    assert last is not None
    _locked_note(work, lambda old: replace(old, upto=last[0]))


def _locked_note(work: UnitOfWork, change: Callable[[Progress], Progress]) -> None:
    progress = _locked(work)
    if progress is not None and progress.upto is None:
        note_progress(work, change(progress))


def progress_of(work: UnitOfWork) -> Progress | None:
    """How far the snapshots are; None if the log is off, or an older release has switched it on."""
    return _read(work.row(_PROGRESS))


def _locked(work: UnitOfWork) -> Progress | None:
    return _read(work.row(_PROGRESS_LOCKED))


def _read(row: Sequence[Any] | None) -> Progress | None:
    return None if row is None else Progress(**json.loads(row[0]))


def note_progress(work: UnitOfWork, progress: Progress) -> None:
    """Store how far the snapshots are."""
    work.run(NOTE, key=SNAPSHOTS, value=json.dumps(asdict(progress)))
