"""`tx.conversations`: the repositories of the domain."""

from persist.conversations.branches import Branches
from persist.conversations.exchange import Exchange
from persist.conversations.messages import ConvMessages
from persist.conversations.progressions import Progressions
from persist.conversations.sessions import ConvSessions
from persist.conversations.vectors import Vectors
from persist.db.repository import on_demand
from persist.db.work import Work


class Conversations:
    """Sessions, their branches, the messages these share, and what owners send each other."""

    sessions = on_demand(ConvSessions)
    branches = on_demand(Branches)
    messages = on_demand(ConvMessages)
    progressions = on_demand(Progressions)
    exchange = on_demand(Exchange)
    vectors = on_demand(Vectors)

    def __init__(self, work: Work) -> None:
        self._work = work
