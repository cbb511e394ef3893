"""`tx.messaging`: the repositories of the domain."""

from persist.db.work import Work
from persist.messaging.messages import MessagingMessages
from persist.messaging.sessions import MessagingSessions


class Messaging:
    """Sessions of people on chat platforms, and their messages."""

    def __init__(self, work: Work) -> None:
        self.sessions = MessagingSessions(work)
        self.messages = MessagingMessages(work)
