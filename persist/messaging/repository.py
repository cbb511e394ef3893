"""`tx.messaging`: the repositories of the domain."""

from persist.db.transactions.repository import Domain, on_demand
from persist.messaging.messages import MessagingMessages
from persist.messaging.sessions import MessagingSessions


class Messaging(Domain):
    """Sessions of users on chat platforms, and their messages."""

    sessions = on_demand(MessagingSessions)
    messages = on_demand(MessagingMessages)
