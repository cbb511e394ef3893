"""Deleting branches and sessions, or changing their order, without losing what remaining branches show."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

from sqlalchemy import delete, exists, func, or_, select

from persist.conversations.models import branches, messages, progressions, sessions
from persist.conversations.schemas import Branch
from persist.conversations.storage.lineage import Heirs, copied_progression, is_shared
from persist.conversations.storage.progressions import Places, cut
from persist.conversations.storage.records import BRANCHES, OF_PROGRESSION, OF_SESSIONS, Line, lock_sessions
from persist.db.changes.batch import Batch, Pending
from persist.db.schema.column_types import among_labels
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable import conditions
from persist.db.unreadable.cells import is_unreadable
from persist.errors import Conflict

# A progression is deleted with its last owner, a former branch with the last branch forked from it; messages stay.

_S = sessions.c
_B = branches.c
_P = progressions.c
_id = param("row_id")
_MESSAGE = Statement(select(messages.c.id).where(messages.c.id == _id))
_POOLS_OF = Statement(select(_S.progression_id).where(among_labels(_S.id, "ids")))
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


class Doomed:
    """Branches that are to be deleted, and their forks, locked and read with a batch."""

    def __init__(self, batch: Batch, line: Line, **values: Any) -> None:
        chosen, forks = _doomed(line)
        self._chosen, self._forks = batch.rows(chosen, **values), batch.rows(forks, **values)

    @property
    def is_there(self) -> bool:
        return bool(self._chosen.result)

    def found(self) -> tuple[list[Branch], list[Branch], bool]:
        """The branches, the forks that stay, and whether there are branches that have no readable id."""
        victims = [BRANCHES.values(row) for row in self._chosen.result]
        named = [branch for branch in victims if not is_unreadable(branch.id)]
        going = {branch.id for branch in named}
        forks = [BRANCHES.values(row) for row in self._forks.result]
        staying = [fork for fork in forks if fork.id not in going and fork.parent_branch_id in going]
        return named, staying, len(named) < len(victims)


@cache
def _doomed(line: Line) -> tuple[Statement, Statement]:
    chosen = select(*BRANCHES.values.columns).where(line.chosen).order_by(_B.id).with_for_update()
    parents = select(_B.id).where(line.chosen)
    return Statement(chosen), Statement(
        select(*BRANCHES.values.columns).where(_B.parent_branch_id.in_(parents)).order_by(_B.id).with_for_update()
    )


class DoomedSessions:
    """Sessions that are to be deleted, with their branches, locked and read with a batch."""

    def __init__(self, batch: Batch, ids: Sequence[str]) -> None:
        self.ids = list(ids)
        lock_sessions(batch, self.ids)
        self.branches = Doomed(batch, OF_SESSIONS, ids=self.ids)
        self.pools = batch.rows(_POOLS_OF, ids=self.ids)


def remove_sessions(work: UnitOfWork, doomed: DoomedSessions) -> tuple[int, int]:
    """Delete sessions with their branches; return the net decrease in rows of branches and of progressions."""
    return remove_branches(work, doomed.branches, doomed)


def remove_branches(work: UnitOfWork, doomed: Doomed, ending: DoomedSessions | None = None) -> tuple[int, int]:
    """Delete branches, and sessions that end with them; return the net decrease in rows of branches and of progressions."""
    victims, forks, has_nameless = doomed.found()
    if work.carried and not forks:  # what cannot be read of them goes with them; a fork would be told by it what it shows
        victims = [conditions.without_unreadable_cells(branch, writes=True) for branch in victims]
    kept: list[str] = []
    if forks:
        heirs = Heirs(work, victims, forks)
        kept = heirs.keep()
        with work.batch() as batch:
            batch.run_many(_DELETE_BRANCH, [{"row_id": branch.id} for branch in victims])
        heirs.copy()
    nameless: list[Pending[int]] = []
    with work.batch() as batch:
        if not forks:
            batch.run_many(_DELETE_BRANCH, [{"row_id": branch.id} for branch in victims])
        pools_gone = _ask_unowned(batch, [branch.progression_id for branch in victims])
        parents = dict.fromkeys([*kept, *(branch.parent_branch_id for branch in victims)])
        formers = [(id, batch.row(_FORMER, row_id=id)) for id in parents if id is not None]
        if ending is not None:
            if has_nameless:
                nameless = [batch.run(_DELETE_NAMELESS, row_id=id) for id in ending.ids]
            batch.run_many(_DELETE_SESSION, [{"row_id": id} for id in ending.ids])
            pools_gone += _ask_unowned(batch, [pool for (pool,) in ending.pools.result if not is_unreadable(pool)])
    settled, pools_settled = settle(work, [id for id, former in formers if former.result is not None])
    branches_gone = len(victims) - len(kept) + sum(one.result for one in nameless) + settled
    return branches_gone, sum(one.result for one in pools_gone) + pools_settled


def _ask_unowned(batch: Batch, pools: Sequence[str | None]) -> list[Pending[int]]:
    return [batch.run(_DELETE_POOL, row_id=pool) for pool in dict.fromkeys(pools) if pool is not None]


def remove_unowned(work: UnitOfWork, pools: Sequence[str | None]) -> int:
    """Delete those of the progressions that no session or branch owns; return how many."""
    return sum(work.run(_DELETE_POOL, row_id=pool) for pool in dict.fromkeys(pools) if pool is not None)


Pointers = list[tuple[str, str, Pending[Row | None]]]


def ask_pointers(batch: Batch, columns: Mapping[str, Any]) -> Pointers:
    """Look with a batch for the messages that a session would point at, for `check_pointers`."""
    names = [name for name in ("first_msg_id", "last_msg_id") if columns.get(name) is not None]
    return [(name, columns[name], batch.row(_MESSAGE, row_id=columns[name])) for name in names]


def check_pointers(found: Pointers) -> None:
    """Raises Conflict where a session would point at a message that does not exist."""
    for name, message_id, row in found:
        if row.result is None:
            raise Conflict(f"There is no message {message_id!r} for {name} to point at.", constraint=f"fk_sessions_{name}")


def settle(work: UnitOfWork, ids: Iterable[str | None], *, but: str | None = None) -> tuple[int, int]:
    """Cut or delete former branches among `ids`; how many branches and progressions went. `but`: a progression that stays."""
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


T = TypeVar("T")
_owners = select(_B.id).where(OF_PROGRESSION.chosen)
_AROUND = Statement(
    select(*BRANCHES.values.columns)
    .where(or_(OF_PROGRESSION.chosen, _B.parent_branch_id.in_(_owners)))
    .order_by(_B.id)
    .with_for_update()
)
"""The branches that show the progression, and their forks."""


class Change(Generic[T]):
    """A change of the places of a progression. The branches that show it, their forks and the progression are locked."""

    def __init__(self, work: UnitOfWork, pool: str, ask: Callable[[Batch, str], T]) -> None:
        self._work, self._pool, self._ask = work, pool, ask
        self.places, self._around, self.found = OF_PROGRESSION.locked(work, self._asked, row_id=pool)

    def _asked(self, batch: Batch) -> tuple[Places, Pending[list[Row]], T]:
        places = Places(self._work, batch, self._pool)
        return places, batch.rows(_AROUND, row_id=self._pool), self._ask(batch, self._pool)

    def spare_forks(self, stay: int) -> None:
        """Preserve what forks show of places that are about to change. `stay`: how many from the first stay as they are."""
        work, pool = self._work, self._pool
        around = [BRANCHES.values(row) for row in self._around.result]
        owners = {branch.id: branch for branch in around if branch.progression_id == pool}
        losing = []
        for fork in around:
            owner = owners.get(fork.parent_branch_id or "")
            if owner is not None and (fork.forked_at_ord or 0) > (owner.forked_at_ord or 0) + stay:
                losing.append(fork)
        if not losing:
            return
        heirs = Heirs(work, list(owners.values()), losing)
        kept = heirs.keep(of=copied_progression(work, pool)) if heirs.keeping else []
        heirs.copy()
        settle(work, [*kept, *(owner.id for owner in owners.values())], but=pool)
