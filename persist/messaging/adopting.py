"""Adopting messaging tables of other programs: dropping an early UNIQUE, and keys with several active sessions."""

from sqlalchemy import func, select, update

from persist.db.operations.adopting import Rules, Takeover
from persist.messaging.models import IS_ACTIVE, SAME_THREAD, sessions

_S = sessions.c


def _one_active(takeover: Takeover) -> None:
    """Deactivate all but the newest active session of each key."""
    newest_first = (_S.last_activity_at.desc(), _S.id.desc())
    place = func.row_number().over(partition_by=(_S.platform, _S.channel_id, SAME_THREAD, _S.user_id), order_by=newest_first)
    ranked = select(_S.id, place.label("place")).where(IS_ACTIVE).subquery()
    older = select(ranked.c.id).where(ranked.c.place > 1)
    count = takeover.run(update(sessions).where(_S.id.in_(older)).values(active=False))
    takeover.settle(sessions, "of several active sessions of one key all but the newest became inactive", count)


RULES = Rules(
    values={_S.last_activity_at: _S.created_at},
    always_written=frozenset({_S.message_count, _S.active}),
    too_unique={sessions: ("platform", "channel_id", "thread_id", "user_id")},
    settle=(_one_active,),
)
