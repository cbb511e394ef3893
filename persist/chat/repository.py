"""`tx.chat`: the repositories of the domain."""

from persist.chat.messages import ChatMessages
from persist.chat.prompts import SystemPrompts
from persist.chat.sessions import ChatSessions
from persist.db.work import Work


class Chat:
    """Sessions, their messages, and the system prompts these were answered under."""

    def __init__(self, work: Work) -> None:
        self.sessions = ChatSessions(work)
        self.messages = ChatMessages(work)
        self.prompts = SystemPrompts(work)
