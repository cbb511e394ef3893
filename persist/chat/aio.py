"""`tx.chat` of AsyncStore: every verb of the repositories as a coroutine."""

from persist.chat.repository import Chat
from persist.chat.verbs.messages import ChatMessages
from persist.chat.verbs.prompts import SystemPrompts
from persist.chat.verbs.sessions import ChatSessions
from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable


class AsyncChatSessions(AsyncRepository[ChatSessions]):
    """See ChatSessions."""

    create = awaitable(ChatSessions.create)
    get = awaitable(ChatSessions.get)
    list = awaitable(ChatSessions.list)
    turn = awaitable(ChatSessions.turn)
    request_stop = awaitable(ChatSessions.request_stop)
    children = awaitable(ChatSessions.children)
    update_metadata = awaitable(ChatSessions.update_metadata)
    archive = awaitable(ChatSessions.archive)
    unarchive = awaitable(ChatSessions.unarchive)
    delete = awaitable(ChatSessions.delete)
    fork = awaitable(ChatSessions.fork)
    rewind = awaitable(ChatSessions.rewind)
    unrewind = awaitable(ChatSessions.unrewind)
    add_permission = awaitable(ChatSessions.add_permission)
    remove_permission = awaitable(ChatSessions.remove_permission)


class AsyncChatMessages(AsyncRepository[ChatMessages]):
    """See ChatMessages."""

    append = awaitable(ChatMessages.append)
    sync = awaitable(ChatMessages.sync)
    list = awaitable(ChatMessages.list)
    list_json = awaitable(ChatMessages.list_json)
    list_rows = awaitable(ChatMessages.list_rows)
    get = awaitable(ChatMessages.get)
    delete = awaitable(ChatMessages.delete)
    file = awaitable(ChatMessages.file)
    replay = awaitable(ChatMessages.replay)
    cursor = awaitable(ChatMessages.cursor)
    update_metadata = awaitable(ChatMessages.update_metadata)
    model_view = awaitable(ChatMessages.model_view)
    compact = awaitable(ChatMessages.compact)
    enqueue = awaitable(ChatMessages.enqueue)
    queued = awaitable(ChatMessages.queued)
    claim_queued = awaitable(ChatMessages.claim_queued)
    cancel_queued = awaitable(ChatMessages.cancel_queued)
    record_step_usage = awaitable(ChatMessages.record_step_usage)
    answer_approval = awaitable(ChatMessages.answer_approval)
    repair_interrupted = awaitable(ChatMessages.repair_interrupted)


class AsyncSystemPrompts(AsyncRepository[SystemPrompts]):
    """See SystemPrompts."""

    put = awaitable(SystemPrompts.put)
    get = awaitable(SystemPrompts.get)


class AsyncChat:
    """See Chat."""

    def __init__(self, work: AsyncWork) -> None:
        chat = Chat(work.work)
        self.sessions = AsyncChatSessions(chat.sessions, work)
        self.messages = AsyncChatMessages(chat.messages, work)
        self.prompts = AsyncSystemPrompts(chat.prompts, work)
