"""`tx.conversations`: the repositories of the domain."""

from persist.conversations.verbs.branches import Branches
from persist.conversations.verbs.exchange import Exchange
from persist.conversations.verbs.messages import ConvMessages
from persist.conversations.verbs.progressions import Progressions
from persist.conversations.verbs.sessions import ConvSessions
from persist.conversations.verbs.vectors import Vectors
from persist.db.transactions.repository import EachVerb, on_demand
from persist.db.transactions.unit_of_work import UnitOfWork


class Conversations:
    """Sessions, their branches, the messages that branches share, and the exchange of messages between owners."""

    sessions = on_demand(ConvSessions)
    branches = on_demand(Branches)
    messages = on_demand(ConvMessages)
    progressions = on_demand(Progressions)
    exchange = on_demand(Exchange)
    vectors = on_demand(Vectors)

    def __init__(self, work: UnitOfWork | EachVerb) -> None:
        self._work = work
