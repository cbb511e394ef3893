"""The event log of a store: switch it on or off, watch its streams, call back after each commit."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from persist.db.changes.journal import COMMITTED
from persist.db.transactions.repository import Verb
from persist.db.transactions.runtime import Runtime
from persist.db.values.arguments import check_flag
from persist.errors import InvalidValue
from persist.lazy_imports import lazy_modules
from persist.store.transaction import TransactionBlock, work_of

if TYPE_CHECKING:
    from persist.events.schemas import Event

with lazy_modules(globals()):
    from persist.events import switching, watching


class StoreEventLog:
    """Switches and follows the event log of one store. The methods of Store with the same purpose say more."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def on(self) -> bool:
        """Whether the event log is on, as far as this store knows."""
        return self._runtime.log is not None

    def switch(self, on: bool) -> bool:
        """Switch the event log on or off in one transaction; whether that changed anything."""
        was_on = self.on
        try:
            with TransactionBlock(self._runtime, writable=True) as tx, Verb(work_of(tx), "switch_events", writes=True):
                changed = (switching.switch_on if check_flag("on", on) else switching.switch_off)(work_of(tx))
        except BaseException:
            self._runtime.keep_log(was_on)
            raise
        self._runtime.keep_log(on)
        return changed

    def watch(self, stream_id: str, after: int, timeout: float | None) -> "Iterator[Event]":
        """Follow one stream after the event with number `after`, or all streams after that log position."""
        return watching.watch(watching.Watcher(self._runtime, stream_id, after, timeout))

    def on_commit(self, callback: "Callable[[Sequence[Event]], object]") -> Callable[[], None]:
        """Call `callback` with the events of every transaction after its commit; return the function that removes it."""
        if not self.on:
            raise InvalidValue("events", "the log of this database is off; open it with events=True.")
        return self._runtime.observers.add(COMMITTED, callback)
