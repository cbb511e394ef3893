"""`tx.conversations` on the async face: every verb of the repositories as a coroutine."""

from persist.conversations.repository import Conversations
from persist.conversations.verbs.branches import Branches
from persist.conversations.verbs.exchange import Exchange
from persist.conversations.verbs.messages import ConvMessages
from persist.conversations.verbs.progressions import Progressions
from persist.conversations.verbs.sessions import ConvSessions
from persist.conversations.verbs.vectors import Vectors
from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable


class AsyncConvSessions(AsyncRepository[ConvSessions]):
    """See ConvSessions."""

    create = awaitable(ConvSessions.create)
    get = awaitable(ConvSessions.get)
    list = awaitable(ConvSessions.list)
    counts = awaitable(ConvSessions.counts)
    update = awaitable(ConvSessions.update)
    touch = awaitable(ConvSessions.touch)
    set_status = awaitable(ConvSessions.set_status)
    transitions = awaitable(ConvSessions.transitions)
    delete = awaitable(ConvSessions.delete)
    prune = awaitable(ConvSessions.prune)


class AsyncBranches(AsyncRepository[Branches]):
    """See Branches."""

    create = awaitable(Branches.create)
    delete = awaitable(Branches.delete)
    get = awaitable(Branches.get)
    list = awaitable(Branches.list)
    fork = awaitable(Branches.fork)
    history = awaitable(Branches.history)
    update = awaitable(Branches.update)
    update_metadata = awaitable(Branches.update_metadata)
    set_system_message = awaitable(Branches.set_system_message)
    set_status = awaitable(Branches.set_status)
    transitions = awaitable(Branches.transitions)
    finalize = awaitable(Branches.finalize)


class AsyncConvMessages(AsyncRepository[ConvMessages]):
    """See ConvMessages."""

    put = awaitable(ConvMessages.put)
    put_many = awaitable(ConvMessages.put_many)
    get = awaitable(ConvMessages.get)
    get_many = awaitable(ConvMessages.get_many)
    delete = awaitable(ConvMessages.delete)
    record = awaitable(ConvMessages.record)


class AsyncProgressions(AsyncRepository[Progressions]):
    """See Progressions."""

    create = awaitable(Progressions.create)
    get = awaitable(Progressions.get)
    describe = awaitable(Progressions.describe)
    append = awaitable(Progressions.append)
    replace = awaitable(Progressions.replace)
    insert = awaitable(Progressions.insert)
    remove = awaitable(Progressions.remove)
    containing = awaitable(Progressions.containing)


class AsyncExchange(AsyncRepository[Exchange]):
    """See Exchange."""

    send = awaitable(Exchange.send)
    post = awaitable(Exchange.post)
    inbox = awaitable(Exchange.inbox)
    outbox = awaitable(Exchange.outbox)
    unread_count = awaitable(Exchange.unread_count)
    mark_read = awaitable(Exchange.mark_read)


class AsyncVectors(AsyncRepository[Vectors]):
    """See Vectors."""

    search = awaitable(Vectors.search)
    backend = awaitable(Vectors.backend)


class AsyncConversations:
    """See Conversations."""

    def __init__(self, work: AsyncWork) -> None:
        conversations = Conversations(work.work)
        self.sessions = AsyncConvSessions(conversations.sessions, work)
        self.branches = AsyncBranches(conversations.branches, work)
        self.messages = AsyncConvMessages(conversations.messages, work)
        self.progressions = AsyncProgressions(conversations.progressions, work)
        self.exchange = AsyncExchange(conversations.exchange, work)
        self.vectors = AsyncVectors(conversations.vectors, work)
