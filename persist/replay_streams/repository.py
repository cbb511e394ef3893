"""`tx.replay_streams`: the repositories of the domain."""

from persist.db.transactions.repository import Domain, F, on_demand
from persist.replay_streams.messages import ReplayMessages
from persist.replay_streams.sessions import ReplaySessions


class ReplayStreams(Domain[F]):
    """Sessions of a server's clients, and what was sent to them."""

    sessions = on_demand(ReplaySessions[F])
    messages = on_demand(ReplayMessages[F])
