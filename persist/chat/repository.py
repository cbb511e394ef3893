"""`tx.chat`: the repositories of the domain."""

from persist.chat.verbs.messages import ChatMessages
from persist.chat.verbs.sessions import ChatSessions, SystemPrompts
from persist.db.transactions.repository import Domain, F, on_demand


class Chat(Domain[F]):
    """Sessions, their messages, and the system prompts that messages were generated with."""

    sessions = on_demand(ChatSessions[F])
    messages = on_demand(ChatMessages[F])
    prompts = on_demand(SystemPrompts[F])
