"""Locks taken before a deletion, in the order in which recording takes them: branches, progressions, sessions, messages.

Rows of one table are locked in the order of their ids, so that two deletions never deadlock. SQLite, which has one writer,
needs none of these locks.
"""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, or_, select

from persist.conversations.models import branches, progressions, sessions
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

_S, _B, _P = sessions.c, branches.c, progressions.c
_MAX_LOOKS = 10


def lock_line(work: UnitOfWork, chosen: ColumnElement[bool]) -> None:
    """Lock the chosen branches, their forks, and the former branches that they were forked from."""
    if work.runtime.dialect.one_writer:
        return
    ids, parents = select(_B.id).where(chosen), select(_B.parent_branch_id).where(chosen)
    line = or_(chosen, _B.parent_branch_id.in_(ids), _B.id.in_(parents) & _B.former_of.is_not(None))
    query = select(_B.id).where(line).order_by(_B.id).with_for_update()
    before: set[str] = set()
    for _ in range(_MAX_LOOKS):  # while this waited for a lock, another writer may have forked one of them
        found = {id for (id,) in work.found(query, unreadable=OnUnreadable.LEAVE_OUT)}
        if found == before:
            return
        before = found


def lock_whole(work: UnitOfWork, ids: Sequence[str]) -> None:
    """Lock sessions with their branches and progressions, before they are deleted."""
    if work.runtime.dialect.one_writer:
        return
    lock_line(work, _B.session_id.in_(ids))
    pools = select(_S.progression_id).where(_S.id.in_(ids)), select(_B.progression_id).where(_B.session_id.in_(ids))
    owned = or_(*(_P.id.in_(pool) for pool in pools))
    work.found(select(_P.id).where(owned).order_by(_P.id).with_for_update(), unreadable=OnUnreadable.LEAVE_OUT)
    work.found(select(_S.id).where(_S.id.in_(ids)).order_by(_S.id).with_for_update(), unreadable=OnUnreadable.LEAVE_OUT)
