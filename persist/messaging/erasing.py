"""Erasing messaging: sessions of a user, with their messages."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from sqlalchemy import select

from persist.db.operations.erasing import (
    LINK,
    NAMED,
    OWNER,
    SESSION,
    USER,
    Erasable,
    ErasableRows,
    Key,
    equal,
    followed,
    holding,
)
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.messaging.models import messages, sessions

_S = sessions.c


class _Sessions(ErasableRows):
    def leads(self, work: UnitOfWork, keys: Sequence[Key]) -> dict[str, list[str]]:
        query = select(_S.agent_session_id).where(_S.id.in_([id for (id,) in keys]), _S.agent_session_id.is_not(None))
        named = [id for (id,) in work.found(query.distinct(), unreadable=OnUnreadable.LEAVE_OUT)]
        return followed([*(id for (id,) in keys), *named], NAMED)

    def told_leads(self, table: str, cells: Mapping[str, Any], found: Container[Key]) -> dict[str, list[str]]:
        agents = cells.get("agent_session_id")
        return followed([agents], NAMED) if table == sessions.name and (cells.get("id"),) in found and agents else {}


ERASABLES: tuple[Erasable, ...] = (
    _Sessions(
        sessions,
        ("id",),
        {
            OWNER: equal(_S.user_id),
            USER: equal(_S.user_id),
            SESSION: equal(_S.id, _S.agent_session_id),
            LINK: equal(_S.agent_session_id),
        },
        (holding(messages, "session_id"),),
    ),
)
