"""Erasing histories: conversations with those forked from them, and runs of agents in them or begun by such runs."""

from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import ColumnElement, Table

from persist.db.operations.erasing import HISTORY, NAMESPACE, SESSION, Erasable, Erased, followed, found_by
from persist.db.operations.erasing_ways import By, Key, Lead, Way, equal
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.histories import records
from persist.histories import runs as history_runs
from persist.histories.models import BELOW_RUN, branches, entries, histories, runs

_H, _R = histories.c, runs.c


class _Whole(Erasable):
    """Rows that go with everything below them and with the entries that nothing else reaches."""

    key = ("id",)
    batch = 10
    survivors = frozenset((entries.name,))

    def __init__(
        self,
        table: Table,
        by: By,
        derived_from: ColumnElement[str | None],
        erase: Callable[[UnitOfWork, str], Mapping[str, int] | None],
        left: Sequence[ColumnElement[str]],
        leading: Sequence[Lead],
    ) -> None:
        self.table, self.by, self.derived_from, self._erase = table, by, derived_from, erase
        self.further = [Way(SESSION, equal(column), (column,)) for column in left]
        self.leading = [Lead((table.c.id,), followed), *leading]

    def erase(self, work: UnitOfWork, keys: Sequence[Key]) -> Erased:
        erased = Erased()
        for (id,) in sorted(keys):
            erased.rows.update(self._erase(work, id) or {})
        return erased


ERASABLES: tuple[Erasable, ...] = (
    _Whole(
        runs,
        {SESSION: equal(_R.id, _R.conversation_id), HISTORY: equal(_R.conversation_id)},
        _R.parent_id,
        lambda work, id: history_runs.erase(work, id, left=True),
        [table.c.run_id for table in BELOW_RUN],
        [],
    ),
    _Whole(
        histories,
        {SESSION: equal(_H.id), NAMESPACE: equal(_H.scope)},
        _H.forked_from,
        lambda work, id: records.erase(work, id, left=True),
        [branches.c.history_id],
        [
            Lead((_H.id,), found_by(HISTORY)),
        ],
    ),
)
