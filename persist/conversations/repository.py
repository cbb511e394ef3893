"""`tx.conversations`: the repositories of the domain."""

from persist.conversations.branches import Branches
from persist.conversations.exchange import Exchange
from persist.conversations.messages import ConvMessages
from persist.conversations.progressions import Progressions
from persist.conversations.sessions import ConvSessions
from persist.conversations.vectors import Vectors
from persist.db.work import Work


class Conversations:
    """Sessions, their branches, the messages these share, and what owners send each other."""

    def __init__(self, work: Work) -> None:
        self.sessions = ConvSessions(work)
        self.branches = Branches(work)
        self.messages = ConvMessages(work)
        self.progressions = Progressions(work)
        self.exchange = Exchange(work)
        self.vectors = Vectors(work)
