"""`tx.chat`: the repositories of the domain."""

from persist.chat.messages import ChatMessages
from persist.chat.prompts import SystemPrompts
from persist.chat.sessions import ChatSessions
from persist.db.repository import on_demand
from persist.db.work import Work


class Chat:
    """Sessions, their messages, and the system prompts these were answered under."""

    sessions = on_demand(ChatSessions)
    messages = on_demand(ChatMessages)
    prompts = on_demand(SystemPrompts)

    def __init__(self, work: Work) -> None:
        self._work = work
