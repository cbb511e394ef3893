"""`tx.messaging`: the repositories of the domain."""

from persist.db.transactions.repository import Domain, F, on_demand
from persist.messaging.messages import MessagingMessages
from persist.messaging.sessions import MessagingSessions


class Messaging(Domain[F]):
    """Sessions of users on chat platforms, and their messages."""

    sessions = on_demand(MessagingSessions[F])
    messages = on_demand(MessagingMessages[F])
