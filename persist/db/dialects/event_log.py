"""What a dialect does for the log of events: telling its guard triggers who keeps the log, and waking its readers."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from persist.db.dialects.wakeups import Wakeups
    from persist.db.statements.prepared import Statement


class EventLogSupport(ABC):
    """The database's part in the event log of one store."""

    kept: bool = False
    """Whether write transactions record events in the event log; the log's guard triggers refuse writers that do not."""

    notice: "Statement | None" = None
    """The statement that wakes readers in other processes when the transaction commits; None where none is needed."""

    @abstractmethod
    def leave_to_database(self, driver: Any) -> AbstractContextManager[None]:
        """Let the guard trigger log the text delta that one statement on a pinned connection inserts."""

    @abstractmethod
    def wakeups(self, listen_url: str | None) -> "Wakeups":
        """Create the object that waits for new events on behalf of a reader of the event log."""
