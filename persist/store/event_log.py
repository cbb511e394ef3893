"""The event log part of a store: switch the log on or off, watch streams, call back after each commit."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from persist.db.changes.journal import COMMITTED
from persist.db.transactions.runtime import Runtime
from persist.db.values.arguments import check_flag
from persist.errors import InvalidValue
from persist.lazy_imports import lazy_module
from persist.store.transaction import TransactionBlock

if TYPE_CHECKING:
    from persist.events import switching, watching
    from persist.events.schemas import Event
else:
    switching = lazy_module("persist.events.switching")
    watching = lazy_module("persist.events.watching")


class EventStore(ABC):
    """The base class of Store that switches and follows the event log."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    @abstractmethod
    def begin(self) -> TransactionBlock:
        """One write transaction."""

    @property
    def logs_events(self) -> bool:
        """Whether the log of events is on, as far as this store knows; only its next transaction knows for certain."""
        return self.runtime.log is not None

    def switch_events(self, on: bool) -> bool:
        """Switch the log of events on or off for every user of the database. False: nothing changed.

        Switching it on writes the rows of the database as one snapshot event per stream; other writers wait until that is
        done. On Postgres the role needs the rights to create functions and triggers: NotPermitted names the missing ones.
        """
        was_on = self.logs_events
        try:
            with self.begin() as tx, tx._work.verb("switch_events", writes=True):
                changed = (switching.switch_on if check_flag("on", on) else switching.switch_off)(tx._work)
        except BaseException:
            self.runtime.keep_log(was_on)
            raise
        self.runtime.keep_log(on)
        return changed

    def watch(self, stream_id: str, *, after: int = 0, timeout: float | None = None) -> "Iterator[Event]":
        """Follow a stream after its event number `after`, or all streams (`*`) after that log position.

        Yields every event once and in order, from every process that writes. `timeout`: end after so many seconds without
        an event; None waits for ever. No transaction is open while the caller handles an event.
        """
        return watching.watch(watching.Watcher(self.runtime, stream_id, after, timeout))

    def on_commit(self, callback: "Callable[[Sequence[Event]], object]") -> Callable[[], None]:
        """Call `callback` with the events of every transaction of this store, after its commit, but not in `join`.

        InvalidValue while the log is off. An exception of the callback is logged, never raised. Call the returned function
        to remove the callback.
        """
        if not self.logs_events:
            raise InvalidValue("events", "the log of this database is off; open it with events=True.")
        return self.runtime.observers.add(COMMITTED, callback)
