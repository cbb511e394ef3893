"""What an export of a session of replay streams contains."""

from persist.db.operations.exporting import Exported, Rows, the_id
from persist.replay_streams.models import messages, sessions

SESSION = Exported(
    "replay session",
    sessions.c.id,
    (
        Rows(sessions, sessions.c.id == the_id(), (sessions.c.id,)),
        Rows(messages, messages.c.session_id == the_id(), (messages.c.session_id, messages.c.id)),
    ),
)
"""An export of one session with its messages."""
