"""`tx.chat`: the repositories of the domain."""

from persist.chat.verbs.messages import ChatMessages
from persist.chat.verbs.prompts import SystemPrompts
from persist.chat.verbs.sessions import ChatSessions
from persist.db.transactions.repository import Domain, on_demand


class Chat(Domain):
    """Sessions, their messages, and the system prompts that messages were generated with."""

    sessions = on_demand(ChatSessions)
    messages = on_demand(ChatMessages)
    prompts = on_demand(SystemPrompts)
