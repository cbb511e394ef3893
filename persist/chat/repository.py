"""`tx.chat`: the repositories of the domain."""

from persist.chat.verbs.messages import ChatMessages
from persist.chat.verbs.prompts import SystemPrompts
from persist.chat.verbs.sessions import ChatSessions
from persist.db.transactions.repository import EachVerb, on_demand
from persist.db.transactions.unit_of_work import UnitOfWork


class Chat:
    """Sessions, their messages, and the system prompts that messages were generated with."""

    sessions = on_demand(ChatSessions)
    messages = on_demand(ChatMessages)
    prompts = on_demand(SystemPrompts)

    def __init__(self, work: UnitOfWork | EachVerb) -> None:
        self._work = work
