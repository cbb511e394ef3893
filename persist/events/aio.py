"""`tx.events` on the async face."""

from persist.db.aio import AsyncRepository, AsyncWork, JoinedWork, awaitable
from persist.events.repository import Events


class AsyncEvents(AsyncRepository[Events]):
    """See Events."""

    read = awaitable(Events.read)
    append = awaitable(Events.append)
    trim = awaitable(Events.trim)


def async_events(work: AsyncWork | JoinedWork) -> AsyncEvents:
    """Of one transaction."""
    return AsyncEvents(Events(work.work), work)
