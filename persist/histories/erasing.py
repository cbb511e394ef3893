"""Erasing histories: conversations with those forked from them, and runs of agents in them or begun by such runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, select

from persist.db.operations.erasing import NAMESPACE, SESSION, By, Erasable, Erased, Key, Values, equal, followed
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.histories import records
from persist.histories import runs as history_runs
from persist.histories.models import BELOW_RUN, branches, entries, histories, runs

_H, _R = histories.c, runs.c
_OF_HISTORY = "history"


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
    ) -> None:
        self.table, self.by, self._left = table, by, left
        self.derived_from, self._erase = derived_from, erase

    def left(self, ids: Values) -> Sequence[Select[Any]]:
        return [select(column).where(column.in_(ids)) for column in self._left]

    def leads(self, work: UnitOfWork, keys: Sequence[Key]) -> dict[str, list[str]]:
        ids = [id for (id,) in keys]
        return {**followed(ids), **({_OF_HISTORY: ids} if self.table is histories else {})}

    def erase(self, work: UnitOfWork, keys: Sequence[Key]) -> Erased:
        erased = Erased()
        for (id,) in sorted(keys):
            erased.rows.update(self._erase(work, id) or {})
        return erased


ERASABLES: tuple[Erasable, ...] = (
    _Whole(
        runs,
        {SESSION: equal(_R.id, _R.conversation_id), _OF_HISTORY: equal(_R.conversation_id)},
        _R.parent_id,
        lambda work, id: history_runs.erase(work, id, left=True),
        [table.c.run_id for table in BELOW_RUN],
    ),
    _Whole(
        histories,
        {SESSION: equal(_H.id), NAMESPACE: equal(_H.scope)},
        _H.forked_from,
        lambda work, id: records.erase(work, id, left=True),
        [branches.c.history_id],
    ),
)
