"""The part of a store that concerns its log of events: switching it, following it, being told at each commit."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from persist.db.changes import COMMITTED
from persist.db.checks import check_flag
from persist.db.runtime import Runtime
from persist.errors import InvalidValue
from persist.later import later
from persist.transaction import TransactionBlock

if TYPE_CHECKING:
    from persist.events import switching, watching
    from persist.events.schemas import Event
else:
    switching = later("persist.events.switching")
    watching = later("persist.events.watching")


class EventStore(ABC):
    """What Store is built on."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    @abstractmethod
    def begin(self) -> TransactionBlock:
        """One write transaction."""

    @property
    def logs_events(self) -> bool:
        """Whether the log of events is on, as far as this store knows; its next transaction knows for certain."""
        return self.runtime.log is not None

    def switch_events(self, on: bool) -> bool:
        """Switch the log of events on or off for everybody who uses the database; False where nothing changed.

        Switching it on writes what the database holds as a snapshot event of each stream; writers wait meanwhile. On Postgres
        it takes the rights to make functions and triggers: NotPermitted says which of them the role lacks.
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
        """Follow a stream from its event number `after` on, or everything (`*`) from that position.

        Every event once and in order, whoever wrote it, from whatever process. `timeout`: end after so many seconds without
        one; None waits for ever. No transaction is held while an event is with the caller.
        """
        return watching.watch(watching.Watcher(self.runtime, stream_id, after, timeout))

    def on_commit(self, callback: "Callable[[Sequence[Event]], object]") -> Callable[[], None]:
        """Call it with the events of every transaction of this store, after its commit, but not in `join`.

        InvalidValue while the log is off. An exception of the callback is logged, never raised. What is returned removes it.
        """
        if not self.logs_events:
            raise InvalidValue("events", "the log of this database is off; open it with events=True.")
        return self.runtime.observers.add(COMMITTED, callback)
