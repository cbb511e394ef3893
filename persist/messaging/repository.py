"""`tx.messaging`: the repositories of the domain."""

from persist.db.repository import on_demand
from persist.db.work import Work
from persist.messaging.messages import MessagingMessages
from persist.messaging.sessions import MessagingSessions


class Messaging:
    """Sessions of people on chat platforms, and their messages."""

    sessions = on_demand(MessagingSessions)
    messages = on_demand(MessagingMessages)

    def __init__(self, work: Work) -> None:
        self._work = work
