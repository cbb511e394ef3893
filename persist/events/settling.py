"""Up to which position the events can be read, and telling the readers that it moved on.

A position is settled once the transaction that took it has ended. An event is read as one of all streams only if all smaller
positions are settled, so that nobody who goes on after it misses one. What is settled is found out in three ways: the mark in the
row of `*`, which the writers' processes move now and then; positions without a gap from there on; and a look at the locks of
running writers, for statements that begin after it.
"""

import time
from collections.abc import Sequence
from functools import partial

from sqlalchemy import Text, literal, select, update

from persist.db.changes.batch import Batch
from persist.db.concurrency.deadline_timer import Timer
from persist.db.expressions.positions import commits_asynchronously, is_snapshot, last_position, settled_position
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.outages import Outage
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_transaction
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import PersistError
from persist.events.models import event_heads, event_positions
from persist.events.schemas import ALL, Event

_EVERY = 0.05
"""Seconds between two notices of one process."""
_MARK_EVERY = 1.0
"""Seconds between two moves of the mark by one process. Readers can do without it; it spares them to look far."""

_H = event_heads.c
# Statements about the sequence name no table: on a distributed server they would run where the table is, without the sequence.
_COUNTER = Statement(select(_H.settled, _H.seq).where(_H.stream_id == ALL))
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
        """Do what is due, and look again later if the mark has to move."""
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


class Look:
    """A look at the positions, which travels with the statements of a batch: settled ones, or (`given`) all that were given.

    What it finds settled is so for statements that begin after it.
    """

    def __init__(self, batch: Batch, *, given: bool = False) -> None:
        self._counter, self._found = batch.row(_COUNTER), batch.row(_LAST if given else _SETTLED)

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
        look = Look(batch)
    return look.position


def last_given(work: UnitOfWork) -> int:
    """The last position that was given, to a transaction that may still run or was rolled back; 0 for none."""
    with work.batch() as batch:
        look = Look(batch, given=True)
    return look.position
