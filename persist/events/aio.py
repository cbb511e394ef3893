"""`tx.events` of AsyncStore."""

from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable
from persist.events.repository import Events


class AsyncEvents(AsyncRepository[Events]):
    """See Events."""

    read = awaitable(Events.read)
    append = awaitable(Events.append)
    trim = awaitable(Events.trim)


def async_events(work: AsyncWork) -> AsyncEvents:
    """`tx.events` of one async transaction."""
    return AsyncEvents(Events(work.work), work)
