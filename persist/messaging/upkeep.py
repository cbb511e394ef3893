"""Upkeep of messaging: inactive sessions go by age, by the rule of `sessions.cleanup_stale`; a user's go with their messages."""

from functools import partial

from sqlalchemy import false, func, select, update

from persist.db.operations import erasing
from persist.db.operations.upkeep import Aggregate, Rules, Takeover, Upkeep, aged, erasable, exported
from persist.messaging.models import IS_ACTIVE, SAME_THREAD, sessions

_S = sessions.c
_FOLLOWED = partial(erasing.followed, otherwise=erasing.NAMED)


def _one_active(takeover: Takeover) -> None:
    """Deactivate all but the newest active session of each key."""
    newest_first = (_S.last_activity_at.desc(), _S.id.desc())
    place = func.row_number().over(partition_by=(_S.platform, _S.channel_id, SAME_THREAD, _S.user_id), order_by=newest_first)
    ranked = select(_S.id, place.label("place")).where(IS_ACTIVE).subquery()
    older = select(ranked.c.id).where(ranked.c.place > 1)
    count = takeover.run(update(sessions).where(_S.id.in_(older)).values(active=False))
    takeover.settle(sessions, "of several active sessions of one key all but the newest became inactive", count)


_sessions = Aggregate(sessions)
UPKEEP = Upkeep(
    prunings=(aged(_sessions, _S.last_activity_at, may_go=_S.active.is_(false())),),
    erasables=(
        erasable(
            _sessions,
            {
                erasing.OWNER: erasing.equal(_S.user_id),
                erasing.USER: erasing.equal(_S.user_id),
                erasing.SESSION: erasing.equal(_S.id, _S.agent_session_id),
                erasing.LINK: erasing.equal(_S.agent_session_id),
            },
            leading=(erasing.Lead((_S.id,), _FOLLOWED), erasing.Lead((_S.id,), _FOLLOWED, (_S.agent_session_id,))),
        ),
    ),
    exports=(exported(_sessions, "messaging session"),),
    adoption=Rules(
        values={_S.last_activity_at: _S.created_at},
        always_written=frozenset({_S.message_count, _S.active}),
        too_unique={sessions: ("platform", "channel_id", "thread_id", "user_id")},
        settle=(_one_active,),
    ),
)
