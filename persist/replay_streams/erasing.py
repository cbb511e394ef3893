"""Erasing replay streams: what was sent to the client of a session."""

from persist.db.operations.erasing import SESSION, Dependent, Erasable, ErasableRows, equal
from persist.replay_streams.models import messages, sessions

ERASABLES: tuple[Erasable, ...] = (
    ErasableRows(
        sessions,
        ("id",),
        {SESSION: equal(sessions.c.id)},
        (Dependent(messages, lambda ids: messages.c.session_id.in_(ids)),),
    ),
)
