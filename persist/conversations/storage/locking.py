"""Locks taken before a deletion, in the order in which recording takes them: branches, progressions, sessions, messages.

Rows of one table are locked in the order of their ids, so that two deletions never deadlock. SQLite, which has one writer,
needs none of these locks.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, or_, select

from persist.conversations.models import branches, progressions, sessions
from persist.db.changes.batch import Batch
from persist.db.schema.arrays import among_labels
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

_S, _B, _P = sessions.c, branches.c, progressions.c
_MAX_LOOKS = 10
R = TypeVar("R")


class Line:
    """Chosen branches, their forks, and the former branches that they were forked from."""

    def __init__(self, chosen: ColumnElement[bool]) -> None:
        self.chosen = chosen
        ids, parents = select(_B.id).where(chosen), select(_B.parent_branch_id).where(chosen)
        line = or_(chosen, _B.parent_branch_id.in_(ids), _B.id.in_(parents) & _B.former_of.is_not(None))
        self._lock = _locking(select(_B.id).where(line).order_by(_B.id))

    def locked(self, work: UnitOfWork, ask: Callable[[Batch], R], **values: Any) -> R:
        """Lock the line, and ask in the same round trip what is to be known of it then."""
        for _ in range(_MAX_LOOKS):
            with work.batch() as batch:
                if work.runtime.dialect.one_writer:
                    return ask(batch)
                looks = batch.rows(self._lock, **values), batch.rows(self._lock, **values)
                asked = ask(batch)
            if looks[0].result == looks[1].result:  # else another writer forked one of them while the first look waited
                break
        return asked


def _locking(query: Any) -> Statement:
    return Statement(query.with_for_update(), unreadable=OnUnreadable.LEAVE_OUT)


OF_BRANCH, OF_PROGRESSION = Line(_B.id == param("row_id")), Line(_B.progression_id == param("row_id"))
OF_SESSIONS = Line(among_labels(_B.session_id, "ids"))

_of_them = among_labels(_S.id, "ids")
_pools = select(_S.progression_id).where(_of_them), select(_B.progression_id).where(OF_SESSIONS.chosen)
_LOCK_POOLS = _locking(select(_P.id).where(or_(*(_P.id.in_(pool) for pool in _pools))).order_by(_P.id))
_LOCK_SESSIONS = _locking(select(_S.id).where(_of_them).order_by(_S.id))


def lock_sessions(batch: Batch, ids: list[str]) -> None:
    """Lock sessions with their progressions, before they are deleted; their branches are locked."""
    batch.lock(_LOCK_POOLS, ids=ids)
    batch.lock(_LOCK_SESSIONS, ids=ids)
