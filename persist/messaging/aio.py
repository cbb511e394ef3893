"""`tx.messaging` of AsyncStore: every verb of the repositories as a coroutine."""

from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable
from persist.messaging.messages import MessagingMessages
from persist.messaging.repository import Messaging
from persist.messaging.sessions import MessagingSessions


class AsyncMessagingSessions(AsyncRepository[MessagingSessions]):
    """See MessagingSessions."""

    list = awaitable(MessagingSessions.list)
    get_or_create = awaitable(MessagingSessions.get_or_create)
    get = awaitable(MessagingSessions.get)
    find_active = awaitable(MessagingSessions.find_active)
    touch = awaitable(MessagingSessions.touch)
    deactivate = awaitable(MessagingSessions.deactivate)
    set_agent_session = awaitable(MessagingSessions.set_agent_session)
    cleanup_stale = awaitable(MessagingSessions.cleanup_stale)


class AsyncMessagingMessages(AsyncRepository[MessagingMessages]):
    """See MessagingMessages."""

    add = awaitable(MessagingMessages.add)
    history = awaitable(MessagingMessages.history)


class AsyncMessaging:
    """See Messaging."""

    def __init__(self, work: AsyncWork) -> None:
        messaging = Messaging(work.work)
        self.sessions = AsyncMessagingSessions(messaging.sessions, work)
        self.messages = AsyncMessagingMessages(messaging.messages, work)
