"""The event log of a store: switch it on or off, watch its streams, call back after each commit."""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from persist.db.changes.journal import COMMITTED
from persist.db.concurrency.worker_threads import Timer
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_snapshot
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.db.values.arguments import check_flag
from persist.errors import InvalidValue, ReadOnlyTransaction, UnreadableRow
from persist.lazy_imports import lazy_module
from persist.store.transaction import TransactionBlock, work_of

if TYPE_CHECKING:
    from persist.events import first_snapshots, switching, watching, writing
    from persist.events.schemas import Event
else:
    first_snapshots = lazy_module("persist.events.first_snapshots")
    switching = lazy_module("persist.events.switching")
    watching = lazy_module("persist.events.watching")
    writing = lazy_module("persist.events.writing")

log = logging.getLogger("persist")

R = TypeVar("R")


class StoreEventLog:
    """Switches and follows the event log of one store. The methods of Store with the same purpose say more."""

    def __init__(self, runtime: Runtime, timer: Timer) -> None:
        self._runtime, self._timer = runtime, timer
        self._settler: first_snapshots.Settler | None = None

    def prepare(self, *, distributed: bool) -> None:
        """Set up how the runtime makes the writer of the log. `distributed`: tables may be on other nodes of a cluster."""
        runtime = self._runtime
        off, notify = partial(runtime.keep_log, False), runtime.dialect.event_log.notify
        runtime.make_log = lambda: writing.EventWriter(
            runtime.clock, runtime.scopes, notify, off, self.ended, distributed=distributed, actor=runtime.actor
        )

    def ended(self) -> None:
        """Wake the readers of the log after the end of a transaction with events."""
        if self._runtime.dialect.event_log.notify is None:
            self._runtime.wake_watchers()
            return
        if self._settler is None:
            self._settler = first_snapshots.Settler(self._runtime, self._timer)
        self._settler()

    def flush(self) -> None:
        """Tell the readers what they have not been told yet: the store is about to close."""
        if self._settler is not None:
            self._timer.forget(self._settler)  # other stores may share the timer, and it goes on
            self._settler.flush()

    @property
    def on(self) -> bool:
        """Whether the event log is on, as far as this store knows."""
        return self._runtime.log is not None

    def switch(self, on: bool, progress: Callable[[int, int], object] | None = None) -> bool:
        """Switch the event log on or off in short transactions; whether that changed anything."""
        runtime = self._runtime
        runtime.refuse_inside_transaction("switch_events()")
        if runtime.read_only:
            raise ReadOnlyTransaction("switch_events")
        tables = runtime.tables()
        if check_flag("on", on):
            changed = switching.switch_on(self._step, tables, lambda: runtime.keep_log(True), progress)
        else:
            changed = switching.switch_off(self._step, tables)
        runtime.keep_log(on)
        return changed

    def open_as(self, on: bool | None) -> None:
        """Switch the log as the opening of the store asks, and go on where switching it on was stopped."""
        if on is not None and (on != self.on or (on and in_snapshot(self._runtime, switching.is_unfinished))):
            try:
                self.switch(on)
            except UnreadableRow as error:  # the log is on, and the next switch writes what is missing
                log.warning("the log of events lacks the snapshot of a stream: %s", error)

    def _step(self, run: Callable[[UnitOfWork], R]) -> R:
        with TransactionBlock(self._runtime, writable=True) as tx, Verb(work_of(tx), "switch_events", writes=True):
            return run(work_of(tx))

    def watch(self, stream_id: str, after: int, timeout: float | None) -> "Iterator[Event]":
        """Follow one stream after the event with number `after`, or all streams after that log position."""
        return watching.watch(watching.Watcher(self._runtime, stream_id, after, timeout))

    def on_commit(self, callback: "Callable[[Sequence[Event]], object]") -> Callable[[], None]:
        """Call `callback` with the events of every transaction after its commit; return the function that removes it."""
        if not self.on:
            raise InvalidValue("events", "the log of this database is off; open it with events=True.")
        return self._runtime.observers.add(COMMITTED, callback)
