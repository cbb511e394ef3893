"""`tx.events` of AsyncStore."""

from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable
from persist.events.consumers import Consumers
from persist.events.repository import Events


class AsyncConsumers(AsyncRepository[Consumers]):
    """See Consumers."""

    create = awaitable(Consumers.create)
    next = awaitable(Consumers.next)
    ack = awaitable(Consumers.ack)
    get = awaitable(Consumers.get)
    list = awaitable(Consumers.list)
    remove = awaitable(Consumers.remove)


class AsyncEvents(AsyncRepository[Events]):
    """See Events."""

    read = awaitable(Events.read)
    append = awaitable(Events.append)
    trim = awaitable(Events.trim)

    def __init__(self, events: Events, work: AsyncWork) -> None:
        super().__init__(events, work)
        self.consumers = AsyncConsumers(events.consumers, work)


def async_events(work: AsyncWork) -> AsyncEvents:
    """`tx.events` of one async transaction."""
    return AsyncEvents(Events(work.work), work)
