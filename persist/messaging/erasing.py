"""Erasing messaging: sessions of a user, with their messages."""

from functools import partial

from persist.db.operations.erasing import (
    LINK,
    NAMED,
    OWNER,
    SESSION,
    USER,
    Erasable,
    ErasableRows,
    followed,
    holding,
)
from persist.db.operations.erasing_ways import Lead, equal
from persist.messaging.models import messages, sessions

_S = sessions.c
_FOLLOWED = partial(followed, otherwise=NAMED)


ERASABLES: tuple[Erasable, ...] = (
    ErasableRows(
        sessions,
        ("id",),
        {
            OWNER: equal(_S.user_id),
            USER: equal(_S.user_id),
            SESSION: equal(_S.id, _S.agent_session_id),
            LINK: equal(_S.agent_session_id),
        },
        (holding(messages, "session_id"),),
        leading=(Lead((_S.id,), _FOLLOWED), Lead((_S.id,), _FOLLOWED, (_S.agent_session_id,))),
    ),
)
