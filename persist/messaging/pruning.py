"""Pruning of messaging: sessions that ended and were silent for long, as `sessions.cleanup_stale` has it."""

from sqlalchemy import false

from persist.db.pruning import AgedRows, Below, Pruning
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
