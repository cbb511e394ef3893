"""`tx.conversations`: the repositories of the domain."""

from persist.conversations.verbs.branches import Branches
from persist.conversations.verbs.exchange import Exchange
from persist.conversations.verbs.messages import ConvMessages, Vectors
from persist.conversations.verbs.progressions import Progressions
from persist.conversations.verbs.sessions import ConvSessions
from persist.db.transactions.repository import Domain, F, on_demand


class Conversations(Domain[F]):
    """Sessions, their branches, the messages that branches share, and the exchange of messages between owners."""

    sessions = on_demand(ConvSessions[F])
    branches = on_demand(Branches[F])
    messages = on_demand(ConvMessages[F])
    progressions = on_demand(Progressions[F])
    exchange = on_demand(Exchange[F])
    vectors = on_demand(Vectors[F])
