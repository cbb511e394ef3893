"""Pruning of histories: conversations that were not written for long, and runs that took no step for long."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, Select, Table, and_, false, or_, select

from persist.db.operations.bounded_deletion import Below, Ids, count_below
from persist.db.operations.pruning import AgedRows, Cut, Pruning, Removed
from persist.db.statements.prepared import Row
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.histories import records
from persist.histories import runs as history_runs
from persist.histories.models import BELOW_RUN, branches, entries, histories, runs, snapshots
from persist.histories.releasing import count_released, history_ends, history_ends_but, run_ends, run_ends_but

Condition = ColumnElement[bool]
_E = entries.c


class _Whole(AgedRows):
    """Rows that go with everything below them and with the entries that nothing else reaches.

    erase     deletes one of them
    ends      makes a query for the entries at which these rows end
    ends_at   makes the condition of the entries at which one of those among the rows ends
    ends_but  makes the condition of the entries at which any of the rows ends, but for those that are going
    """

    batch = 50

    def __init__(
        self,
        table: Table,
        at: ColumnElement[Any],
        key: ColumnElement[Any],
        *,
        erase: Callable[[UnitOfWork, str, datetime], Mapping[str, int] | None],
        ends: Callable[[Ids], Select[Any] | CompoundSelect[Any]],
        ends_at: Callable[[Condition], Condition],
        ends_but: Callable[[Condition], Condition],
        below: Sequence[Below],
        may_go: Condition | None = None,
    ) -> None:
        super().__init__(table, at, key, may_go=may_go, below=below)
        self._erase, self._ends, self._ends_at, self._ends_but = erase, ends, ends_at, ends_but

    def tally(self, work: UnitOfWork, cut: Cut, earlier: Sequence[Pruning]) -> Removed | None:
        if not self.reads_all(work, cut):  # what stays because nobody can read it holds its entries
            return None
        counted, last = Removed(), None
        trees = set[str]()
        while found := self.look(work, cut, last):
            for some in self.batches(found):
                ids = [row[1] for row in some]
                roots = {root for (root,) in work.found(select(_E.root_id).where(_E.id.in_(self._ends(ids))).distinct())} - trees
                counted.rows[self.table.name] += len(ids)
                counted.rows += count_below(work, self._below, ids)
                counted.rows[entries.name] += self._released(work, cut, earlier, sorted(roots))
                trees |= roots
            last = found[-1]
        return counted

    def _released(self, work: UnitOfWork, cut: Cut, earlier: Sequence[Pruning], roots: Sequence[str]) -> int:
        """How many entries of these trees go with the rows, but for those that went with the `earlier` prunings."""
        count = count_released(work, roots, _reached(cut, [*earlier, self]))
        gone = [one.ends_of_going(cut) for one in _ALL if one in earlier]
        if not gone or not count:
            return count
        ended = select(_E.root_id).where(_E.root_id.in_(roots), or_(*gone)).distinct()
        return count - count_released(work, [root for (root,) in work.found(ended)], _reached(cut, earlier))

    def ends_of_going(self, cut: Cut) -> Condition:
        """The condition of the entries at which one of the rows that go ends."""
        return self._ends_at(self._going(cut))

    def ends_of_left(self, cut: Cut, *, pruned: bool) -> Condition:
        """The condition of the entries at which one of the rows ends, or once they are `pruned` one of those that stay."""
        return self._ends_but(self._going(cut) if pruned else false())

    def _going(self, cut: Cut) -> Condition:
        goes = and_(*self._goes(cut))
        return and_(goes, self._identity.not_in(self._newest(cut.keep))) if cut.keep else goes

    def prepare(self, work: UnitOfWork) -> None:
        """Nothing: the statements that delete a row are compiled once per process, and others than those of AgedRows."""

    def remove(self, work: UnitOfWork, cut: Cut, found: Sequence[Row]) -> Removed:
        removed = Removed()
        for id in sorted(row[1] for row in found):
            removed.rows.update(self._erase(work, id, cut.before) or {})
        return removed


def _reached(cut: Cut, gone: Collection[Pruning]) -> Condition:
    """The condition of the entries at which something ends once the prunings that are `gone` have removed their rows."""
    return or_(*(one.ends_of_left(cut, pruned=one in gone) for one in _ALL))


_H, _B, _S = histories.c, branches.c, snapshots.c

HISTORIES = _Whole(
    histories,
    _H.updated_at,
    _H.id,
    erase=lambda work, id, at: records.erase(work, id, before=at),
    ends=lambda ids: select(_H.head_id).where(_H.id.in_(ids)).union(select(_B.entry_id).where(_B.history_id.in_(ids))),
    ends_at=history_ends,
    ends_but=history_ends_but,
    below=[Below(branches, lambda ids: _B.history_id.in_(ids))],
    may_go=_H.deferred_json.is_(None),  # a conversation that waits for the results of tool calls stays
)
RUNS = _Whole(
    runs,
    runs.c.updated_at,
    runs.c.id,
    erase=history_runs.erase,
    ends=lambda ids: select(_S.head_id).where(_S.run_id.in_(ids)),
    ends_at=run_ends,
    ends_but=run_ends_but,
    below=[Below(table, lambda ids, table=table: table.c.run_id.in_(ids)) for table in BELOW_RUN],  # type: ignore[misc]  # a bound default
)
_ALL = (HISTORIES, RUNS)
PRUNINGS: tuple[Pruning, ...] = _ALL
