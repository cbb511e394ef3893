"""What an export of a messaging session contains."""

from persist.db.operations.exporting import Exported, Rows, the_id
from persist.messaging.models import messages, sessions

SESSION = Exported(
    "messaging session",
    sessions.c.id,
    (
        Rows(sessions, sessions.c.id == the_id(), (sessions.c.id,)),
        Rows(messages, messages.c.session_id == the_id(), (messages.c.id,)),
    ),
)
