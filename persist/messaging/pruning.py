"""Pruning of messaging: inactive sessions without activity for long, by the rule of `sessions.cleanup_stale`."""

from sqlalchemy import false

from persist.db.operations.bounded_deletion import Below
from persist.db.operations.pruning import AgedRows, Pruning
from persist.messaging.models import messages, sessions

_S = sessions.c

SESSIONS = AgedRows(
    sessions,
    _S.last_activity_at,
    _S.id,
    may_go=_S.active.is_(false()),
    below=(Below(messages, lambda ids: messages.c.session_id.in_(ids)),),
)

PRUNINGS: tuple[Pruning, ...] = (SESSIONS,)
