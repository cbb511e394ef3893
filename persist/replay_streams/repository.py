"""`tx.replay_streams`: the repositories of the domain."""

from persist.db.transactions.repository import Domain, on_demand
from persist.replay_streams.messages import ReplayMessages
from persist.replay_streams.sessions import ReplaySessions


class ReplayStreams(Domain):
    """Sessions of a server's clients, and what was sent to them."""

    sessions = on_demand(ReplaySessions)
    messages = on_demand(ReplayMessages)
