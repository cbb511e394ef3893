"""Changing the order of a progression without losing what forks of the branches that show it inherit."""

from collections.abc import Callable
from typing import Generic, TypeVar

from sqlalchemy import or_, select

from persist.conversations.models import branches
from persist.conversations.storage.branch_rows import BRANCH
from persist.conversations.storage.deletion import settle
from persist.conversations.storage.inheritance import Heirs, copied_progression
from persist.conversations.storage.locking import OF_PROGRESSION
from persist.conversations.storage.progression_members import Places
from persist.db.changes.batch import Batch, Pending
from persist.db.statements.prepared import Row, Statement
from persist.db.transactions.unit_of_work import UnitOfWork

T = TypeVar("T")
_B = branches.c
_owners = select(_B.id).where(OF_PROGRESSION.chosen)
_AROUND = Statement(
    select(*BRANCH.columns).where(or_(OF_PROGRESSION.chosen, _B.parent_branch_id.in_(_owners))).order_by(_B.id).with_for_update()
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
        around = [BRANCH(row) for row in self._around.result]
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
