"""Erasing replay streams: what was sent to the client of a session."""

from persist.db.operations.erasing import SESSION, Erasable, ErasableRows, holding
from persist.db.operations.erasing_ways import equal
from persist.replay_streams.models import messages, sessions

ERASABLES: tuple[Erasable, ...] = (
    ErasableRows(
        sessions,
        ("id",),
        {SESSION: equal(sessions.c.id)},
        (holding(messages, "session_id"),),
    ),
)
