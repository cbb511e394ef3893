"""Deleting branches and sessions, and changing the order of progressions, without losing what remaining branches show.

A progression is deleted with its last owner (session or branch), a former branch (see inheritance) with the last branch
forked from it; messages stay.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, exists, func, or_, select

from persist.conversations.models import branches, messages, progressions, sessions
from persist.conversations.storage.branch_rows import COLUMNS, branch_value
from persist.conversations.storage.inheritance import Heirs, copied_progression, forks_of, is_shared
from persist.conversations.storage.locking import lock_line
from persist.conversations.storage.progression_members import cut, lock_progression
from persist.db.changes.batch import Batch, Pending
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable import results
from persist.db.unreadable.cells import is_unreadable
from persist.errors import Conflict

_S, _B, _P = sessions.c, branches.c, progressions.c
_id = param("row_id")
_MESSAGE = Statement(select(messages.c.id).where(messages.c.id == _id))
_BRANCH = Statement(select(*COLUMNS).where(_B.id == _id).with_for_update())
_OWNERS = Statement(select(*COLUMNS).where(_B.progression_id == _id).order_by(_B.id).with_for_update())
_OF_SESSION = Statement(select(_B.id).where(_B.session_id == _id).order_by(_B.id).with_for_update())
_SESSION_POOL = Statement(select(_S.progression_id).where(_S.id == _id))
_DELETE_BRANCH = Statement(delete(branches).where(_B.id == _id))
_DELETE_NAMELESS = Statement(delete(branches).where(_B.session_id == _id))
"""Deletes branches of a session that have unreadable ids."""
_DELETE_SESSION = Statement(delete(sessions).where(_S.id == _id))
_owned = or_(exists().where(_B.progression_id == _P.id), exists().where(_S.progression_id == _P.id))
_DELETE_POOL = Statement(delete(progressions).where(_P.id == _id, ~_owned))
_FORMER = Statement(
    select(_B.progression_id, _B.parent_branch_id, func.coalesce(_B.forked_at_ord, 0))
    .where(_B.id == _id, _B.former_of.is_not(None))
    .with_for_update()
)
_SHOWN_UPTO = Statement(select(func.max(_B.forked_at_ord)).where(_B.parent_branch_id == _id))


def remove_sessions(work: UnitOfWork, ids: Sequence[str]) -> tuple[int, int]:
    """Delete sessions with their branches; return the net decrease in rows of branches and of progressions."""
    found = [branch for id in ids for (branch,) in work.rows(_OF_SESSION, row_id=id)]
    branches_gone, pools_gone = remove_branches(work, [id for id in found if not is_unreadable(id)])
    pools = [pool for id in ids for (pool,) in work.rows(_SESSION_POOL, row_id=id) if not is_unreadable(pool)]
    if any(map(is_unreadable, found)):
        branches_gone += sum(work.run(_DELETE_NAMELESS, row_id=id) for id in ids)
    for id in ids:
        work.run(_DELETE_SESSION, row_id=id)
    return branches_gone, pools_gone + remove_unowned(work, pools)


def remove_branches(work: UnitOfWork, ids: Sequence[str]) -> tuple[int, int]:
    """Delete branches; return the net decrease in rows of branches and of progressions."""
    victims = [branch_value(row) for id in ids for row in work.rows(_BRANCH, row_id=id)]
    going = {branch.id for branch in victims}
    forks = [fork for branch in victims for fork in forks_of(work, branch.id) if fork.id not in going]
    if work.carried and not forks:  # what cannot be read of them goes with them; a fork would be told by it what it shows
        victims = [results.without_unreadable_cells(branch, writes=True) for branch in victims]
    heirs = Heirs(work, victims, forks)
    kept = heirs.keep()
    for branch in victims:
        work.run(_DELETE_BRANCH, row_id=branch.id)
    heirs.copy()
    pools_gone = remove_unowned(work, [branch.progression_id for branch in victims])
    settled, pools_settled = _settle(work, [*kept, *(branch.parent_branch_id for branch in victims)])
    return len(victims) - len(kept) + settled, pools_gone + pools_settled


def remove_unowned(work: UnitOfWork, pools: Sequence[str | None]) -> int:
    """Delete those of the progressions that no session or branch owns; return how many."""
    return sum(work.run(_DELETE_POOL, row_id=pool) for pool in dict.fromkeys(pools) if pool is not None)


def lock_owners(work: UnitOfWork, pool: str) -> None:
    """Lock the branches that show a progression, and their forks; call it before locking the progression."""
    lock_line(work, _B.progression_id == pool)


def spare_forks(work: UnitOfWork, pool: str, unchanged: Callable[[], int]) -> None:
    """Preserve what forks show of places that are about to change; the progression's owners are locked.

    `unchanged` returns how many places from the first stay as they are; called under the lock, only if there are forks.
    """
    owners = [branch_value(row) for row in work.rows(_OWNERS, row_id=pool)]
    forks = [(fork, owner.forked_at_ord or 0) for owner in owners for fork in forks_of(work, owner.id)]
    if not forks:
        return
    lock_progression(work, pool)
    stay = unchanged()
    losing = [fork for fork, inherited in forks if (fork.forked_at_ord or 0) > inherited + stay]
    if not losing:
        return
    heirs = Heirs(work, owners, losing)
    kept = heirs.keep(of=copied_progression(work, pool)) if heirs.keeping else []
    heirs.copy()
    _settle(work, [*kept, *(owner.id for owner in owners)], but=pool)


Pointers = list[tuple[str, str, Pending[Row | None]]]


def ask_pointers(batch: Batch, columns: Mapping[str, Any]) -> Pointers:
    """Look with a batch for the messages that a session would point at, for `check_pointers`."""
    names = [name for name in ("first_msg_id", "last_msg_id") if columns.get(name) is not None]
    return [(name, columns[name], batch.row(_MESSAGE, row_id=columns[name])) for name in names]


def check_pointers(found: Pointers) -> None:
    """Conflict where a session would point at a message that does not exist."""
    for name, message_id, row in found:
        if row.result is None:
            raise Conflict(f"There is no message {message_id!r} for {name} to point at.", constraint=f"fk_sessions_{name}")


def _settle(work: UnitOfWork, ids: Iterable[str | None], *, but: str | None = None) -> tuple[int, int]:
    """Cut former branches among `ids` to what their forks show, and delete those without forks.

    Returns how many branches and progressions were deleted. `but`: the progression that is being written, which stays.
    """
    waiting = list(dict.fromkeys(ids))
    branches_gone = pools_gone = 0
    while waiting:
        id = waiting.pop()
        former = None if id is None else work.row(_FORMER, row_id=id)
        if id is None or former is None:
            continue
        pool, parent, inherited = former
        shown = work.row(_SHOWN_UPTO, row_id=id)
        if shown is None or shown[0] is None:
            branches_gone += work.run(_DELETE_BRANCH, row_id=id)
            pools_gone += 0 if pool == but else remove_unowned(work, [pool])
            waiting.append(parent)
        elif pool != but and not is_shared(work, pool, id):
            cut(work, pool, max(shown[0] - inherited, 0))
    return branches_gone, pools_gone
