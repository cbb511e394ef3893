"""`tx.conversations`: the repositories of the domain."""

from persist.conversations.verbs.branches import Branches
from persist.conversations.verbs.exchange import Exchange
from persist.conversations.verbs.messages import ConvMessages
from persist.conversations.verbs.progressions import Progressions
from persist.conversations.verbs.sessions import ConvSessions
from persist.conversations.verbs.vectors import Vectors
from persist.db.transactions.repository import Domain, on_demand


class Conversations(Domain):
    """Sessions, their branches, the messages that branches share, and the exchange of messages between owners."""

    sessions = on_demand(ConvSessions)
    branches = on_demand(Branches)
    messages = on_demand(ConvMessages)
    progressions = on_demand(Progressions)
    exchange = on_demand(Exchange)
    vectors = on_demand(Vectors)
