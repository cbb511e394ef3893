"""What is locked before anything goes, in the order in which messages are recorded: branches, progressions, sessions, messages.

Rows of one table are locked in the order of their ids, so that two who delete never wait for each other. None of it is needed
where there is one writer.
"""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, or_, select

from persist.conversations.models import branches, progressions, sessions
from persist.db.spoilt import Spoilt
from persist.db.work import Work

_S, _B, _P = sessions.c, branches.c, progressions.c
_MOST_LOOKS = 10


def lock_line(work: Work, chosen: ColumnElement[bool]) -> None:
    """Lock these branches, what was forked from them, and the former branches that they were forked from."""
    if work.runtime.dialect.one_writer:
        return
    ids, parents = select(_B.id).where(chosen), select(_B.parent_branch_id).where(chosen)
    line = or_(chosen, _B.parent_branch_id.in_(ids), _B.id.in_(parents) & _B.former_of.is_not(None))
    query = select(_B.id).where(line).order_by(_B.id).with_for_update()
    before: set[str] = set()
    for _ in range(_MOST_LOOKS):  # who was waited for may have forked one of them
        found = {id for (id,) in work.found(query, spoilt=Spoilt.LEAVE_OUT)}
        if found == before:
            return
        before = found


def lock_whole(work: Work, ids: Sequence[str]) -> None:
    """Lock all of the sessions that are to go."""
    if work.runtime.dialect.one_writer:
        return
    lock_line(work, _B.session_id.in_(ids))
    pools = select(_S.progression_id).where(_S.id.in_(ids)), select(_B.progression_id).where(_B.session_id.in_(ids))
    owned = or_(*(_P.id.in_(pool) for pool in pools))
    work.found(select(_P.id).where(owned).order_by(_P.id).with_for_update(), spoilt=Spoilt.LEAVE_OUT)
    work.found(select(_S.id).where(_S.id.in_(ids)).order_by(_S.id).with_for_update(), spoilt=Spoilt.LEAVE_OUT)
