"""Pruning of replay streams: sessions for which no message was stored for long, with all their messages."""

from persist.db.operations.bounded_deletion import Below
from persist.db.operations.pruning import AgedRows, Pruning
from persist.replay_streams.models import messages, sessions

SESSIONS = AgedRows(
    sessions,
    sessions.c.updated_at,
    sessions.c.id,
    below=(Below(messages, lambda ids: messages.c.session_id.in_(ids)),),
)

PRUNINGS: tuple[Pruning, ...] = (SESSIONS,)
