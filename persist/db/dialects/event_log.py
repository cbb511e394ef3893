"""What a dialect does for the log of events: telling its guard triggers who keeps the log, and waking its readers."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from sqlalchemy.sql.elements import ColumnElement

if TYPE_CHECKING:
    from persist.db.dialects.wakeups import Wakeups

Notify = Callable[[ColumnElement[str]], ColumnElement[Any]]
"""Makes the SQL that sends a text to the readers."""

EVENTS, TURNS, RUNS = "events", "turns", "runs"
"""The topics that readers wait for: new events of the log, changes of running turns, and runs that workers may claim."""

MAX_PAYLOAD = 2000
"""The characters of a notification. Postgres takes at most 8000 bytes."""


class EventLogSupport(ABC):
    """The database's part in the event log of one store."""

    kept: bool = False
    """Whether write transactions record events in the event log; the log's guard triggers refuse writers that do not."""

    channel: str = ""
    """The channel of those notifications of events that one statement of many schemas sends."""

    notify: Notify | None = None
    """Makes the SQL that wakes readers in other processes when the transaction commits; None where none is needed."""

    @abstractmethod
    def leave_to_database(self, driver: Any) -> AbstractContextManager[None]:
        """Let the guard trigger log the text delta that one statement on a pinned connection inserts."""

    def notification(self, topic: str) -> Notify | None:
        """Makes the SQL that tells the readers of a topic, in other processes, what changed; None where none is needed."""
        return None

    @abstractmethod
    def wakeups(self, listen_url: str | None, topic: str = EVENTS) -> "Wakeups":
        """Create the object that waits for new events on behalf of a reader: of the event log, or of another topic."""
