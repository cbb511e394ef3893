"""Pruning of histories: conversations that were not written for long, and runs that took no step for long."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Table
from sqlalchemy.sql.elements import ColumnElement

from persist.db.operations.pruning import AgedRows, Cut, Pruning, Removed
from persist.db.statements.prepared import Row
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.histories import records
from persist.histories import runs as history_runs
from persist.histories.models import histories, runs


class _Whole(AgedRows):
    """Rows that go with everything below them and with the entries that nothing else reaches."""

    batch = 50

    def __init__(
        self,
        table: Table,
        at: ColumnElement[Any],
        key: ColumnElement[Any],
        erase: Callable[[UnitOfWork, str, datetime], Mapping[str, int] | None],
        may_go: ColumnElement[bool] | None = None,
    ) -> None:
        super().__init__(table, at, key, may_go=may_go)
        self._erase = erase

    def tally(self, work: UnitOfWork, cut: Cut, earlier: Sequence[Pruning]) -> Removed | None:
        return None  # which entries nothing else reaches is known when what reaches them is gone

    def remove(self, work: UnitOfWork, cut: Cut, found: Sequence[Row]) -> Removed:
        removed = Removed()
        for id in sorted(row[1] for row in found):
            removed.rows.update(self._erase(work, id, cut.before) or {})
        return removed


# a conversation that waits for the results of tool calls stays
PRUNINGS: tuple[Pruning, ...] = (
    _Whole(
        histories,
        histories.c.updated_at,
        histories.c.id,
        lambda work, id, at: records.erase(work, id, before=at),
        may_go=histories.c.deferred_json.is_(None),
    ),
    _Whole(runs, runs.c.updated_at, runs.c.id, history_runs.erase),
)
