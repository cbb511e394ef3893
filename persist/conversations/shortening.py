"""Shortening of a conversation that is to be pruned and has too many places for one transaction: its last places go first.

What is left is a shorter conversation. Places that another session shows stay until the conversation is deleted as a whole.
"""

from datetime import datetime

from sqlalchemy import and_, delete, exists, func, or_, select

from persist.conversations.models import branches, members, progressions, sessions
from persist.conversations.storage.deletion import DoomedSessions
from persist.conversations.storage.progressions import SHOW
from persist.conversations.storage.rows import OF_SESSIONS
from persist.db.changes.batch import Batch, Pending
from persist.db.operations.pruning import Removed
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork

_S, _B, _P, _M = sessions.c, branches.c, progressions.c, members.c
_id, _session = param("row_id"), param("of_session")
_by_session, _by_branch = exists().where(_S.progression_id == _P.id), exists().where(_B.progression_id == _P.id)
_places = select(func.coalesce(func.max(_M.ord) + 1, 0)).where(_M.progression_id == _P.id).scalar_subquery()
_of_session = or_(_by_session.where(_S.id == _session), _by_branch.where(_B.session_id == _session))
_of_others = or_(_by_session.where(_S.id != _session), _by_branch.where(_B.session_id != _session))
_own = select(_P.id, _places.label("places"), _P.folded).where(and_(_of_session, ~_of_others))
_LONGEST = Statement(_own.order_by(_places.desc(), _P.id).limit(1))
_own_places = _own.subquery("own")
_TOTAL = Statement(select(func.coalesce(func.sum(_own_places.c.places), 0)))
_LAST = Statement(select(_M.message_id).where(_M.progression_id == _id, _M.ord >= param("first")))
_DELETE = Statement(delete(members).where(_M.progression_id == _id, _M.ord >= param("first")))


class _LockedSession:
    """A session with its branches, locked as for its deletion, and whether it may still go."""

    def __init__(self, batch: Batch, id: str, still: Statement, cutoff: datetime) -> None:
        self.doomed = DoomedSessions(batch, [id])
        self.still: Pending[list[Row]] = batch.rows(still, ids=[id], cutoff=cutoff)


def shorten(work: UnitOfWork, id: str, still: Statement, cutoff: datetime, most: int) -> Removed | None:
    """Delete at most `most` last places of the session's longest progression; their messages are the followers.

    `still`: the statement that selects the session if it may be pruned. None, and nothing is deleted, if it may not, or if the
    session has no more than `most` places in progressions that only it shows.
    """
    asked = OF_SESSIONS.locked(work, lambda batch: _LockedSession(batch, id, still, cutoff), ids=[id])
    _, forks, _ = asked.doomed.branches.found()
    if not asked.still.result or forks:  # forks keep what they inherit, and that is not deleted anyway
        return None
    total, longest = work.row(_TOTAL, of_session=id), work.row(_LONGEST, of_session=id)
    if total is None or longest is None or total[0] <= most:
        return None
    pool, places, folded = longest
    first = max(places - most, 0)
    removed = Removed()
    removed.followers += sorted({message for (message,) in work.rows(_LAST, row_id=pool, first=first)})
    if folded > first:  # written once: the array lags from now on, and shows nothing that is gone
        work.run(SHOW, row_id=pool, upto=0)
    removed.rows[members.name] += work.run(_DELETE, row_id=pool, first=first)
    return removed
