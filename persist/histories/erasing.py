"""Erasing histories: conversations with those forked from them, and runs of agents in them or begun by such runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, exists, select

from persist.db.operations.bounded_deletion import delete_rows
from persist.db.operations.erasing import HISTORY, NAMESPACE, SESSION, Erasable, Erased, followed, found_by
from persist.db.operations.erasing_ways import By, Key, Lead, Way, equal
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.histories import records
from persist.histories import runs as history_runs
from persist.histories.models import BELOW_RUN, branches, entries, histories, runs, snapshots

_H, _R, _E = histories.c, runs.c, entries.c
_ENTRY = "history entry"
"""Finds the tree of a message at which something ends that is erased."""
_ENDS = (_H.head_id, branches.c.entry_id, snapshots.c.head_id)


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


class _Trees(Erasable):
    """Trees of messages: what is left of those in which nothing ends any more, also where a message was set aside."""

    table = entries
    key = ("root_id",)
    by = {_ENTRY: equal(_E.id)}  # noqa: RUF012  # read only
    own_streams = False

    def erase(self, work: UnitOfWork, keys: Sequence[Key]) -> Erased:
        erased, of = Erased(), _E.root_id.in_([root for (root,) in keys])
        _found(work, select(_E.id).where(of).order_by(_E.id).with_for_update())
        ended = {
            root
            for column in _ENDS
            for root in _found(work, select(_E.root_id).where(of, exists().where(column == _E.id)).distinct())
        }
        # an end that cannot be read may be in any tree
        lost = [select(column).where(column.is_not(None), ~exists().where(_E.id == column)).limit(1) for column in _ENDS]
        if not any(_found(work, query) for query in lost):
            going = [root for (root,) in keys if (root,) not in ended]
            erased.rows[entries.name] = delete_rows(work, entries, _E.root_id.in_(going))
        there = set(_found(work, select(_E.root_id).where(of).distinct()))
        erased.elsewhere[entries.name] = (self.key, [key for key in keys if key not in there])
        return erased


def _found(work: UnitOfWork, query: Any) -> list[Key]:
    return [tuple(row) for row in work.found(query, unreadable=OnUnreadable.LEAVE_OUT)]


ERASABLES: tuple[Erasable, ...] = (
    _Whole(
        runs,
        {SESSION: equal(_R.id, _R.conversation_id), HISTORY: equal(_R.conversation_id)},
        _R.parent_id,
        lambda work, id: history_runs.erase(work, id, left=True),
        [table.c.run_id for table in BELOW_RUN],
        [Lead((snapshots.c.run_id,), found_by(_ENTRY), (snapshots.c.head_id,))],
    ),
    _Whole(
        histories,
        {SESSION: equal(_H.id), NAMESPACE: equal(_H.scope)},
        _H.forked_from,
        lambda work, id: records.erase(work, id, left=True),
        [branches.c.history_id],
        [
            Lead((_H.id,), found_by(HISTORY)),
            Lead((_H.id,), found_by(_ENTRY), (_H.head_id,)),
            Lead((branches.c.history_id,), found_by(_ENTRY), (branches.c.entry_id,)),
        ],
    ),
    _Trees(),
)
