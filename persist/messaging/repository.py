"""`tx.messaging`: the repositories of the domain."""

from persist.db.transactions.repository import EachVerb, on_demand
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.messaging.messages import MessagingMessages
from persist.messaging.sessions import MessagingSessions


class Messaging:
    """Sessions of users on chat platforms, and their messages."""

    sessions = on_demand(MessagingSessions)
    messages = on_demand(MessagingMessages)

    def __init__(self, work: UnitOfWork | EachVerb) -> None:
        self._work = work
