"""Upkeep of histories: a person's are conversations with their forks, and runs of agents in them or begun by such runs."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, Select, Table, and_, exists, false, or_, select

from persist.db.dialects.interface import Problem, Severity
from persist.db.operations import erasing
from persist.db.operations.bounded_deletion import DependentRows, Ids, count_below, delete_rows
from persist.db.operations.pruning import AgedRows, Cut, Pruning, Removed
from persist.db.operations.upkeep import Aggregate, Rows, Upkeep, exported, the_id
from persist.db.schema.base import json_object, optional, texts
from persist.db.statements.prepared import Row
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import named
from persist.framework_state.histories import records
from persist.framework_state.histories import runs as history_runs
from persist.framework_state.histories.appending import lines_to
from persist.framework_state.histories.models import BELOW_RUN, branches, entries, histories, run_events, runs, snapshots
from persist.framework_state.histories.records import count_released, history_ends, history_ends_but, run_ends, run_ends_but

Condition = ColumnElement[bool]
_H, _R, _E, _B, _S = histories.c, runs.c, entries.c, branches.c, snapshots.c


class _AgedWhole(AgedRows):
    """Rows that go with all below them and the entries that nothing else reaches; `ends…` make queries of rows' last entries."""

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
        below: Sequence[DependentRows],
        may_go: Condition | None = None,
    ) -> None:
        super().__init__(table, at, key, may_go=may_go, below=below)
        self._erase, self._ends, self._ends_at, self._ends_but = erase, ends, ends_at, ends_but

    def tally(self, work: UnitOfWork, cut: Cut, earlier: Sequence[Pruning]) -> Removed | None:
        if not self.reads_all(work, cut):  # what stays because nobody can read it holds its entries
            return None
        counted, last = Removed(), None
        trees = set[str]()
        while found := self.next_candidates(work, cut, last):
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
        """The condition of entries at which a row that is to be pruned ends."""
        return self._ends_at(self._going(cut))

    def ends_of_left(self, cut: Cut, *, pruned: bool) -> Condition:
        """The condition of entries at which a row ends; once rows are `pruned`, at which a remaining row ends."""
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


HISTORIES = _AgedWhole(
    histories,
    _H.updated_at,
    _H.id,
    erase=lambda work, id, at: records.erase(work, id, before=at),
    ends=lambda ids: select(_H.head_id).where(_H.id.in_(ids)).union(select(_B.entry_id).where(_B.history_id.in_(ids))),
    ends_at=history_ends,
    ends_but=history_ends_but,
    below=[DependentRows(branches, lambda ids: _B.history_id.in_(ids))],
    may_go=_H.deferred_json.is_(None),  # a conversation that waits for the results of tool calls stays
)
RUNS = _AgedWhole(
    runs,
    runs.c.updated_at,
    runs.c.id,
    erase=history_runs.erase,
    ends=lambda ids: select(_S.head_id).where(_S.run_id.in_(ids)),
    ends_at=run_ends,
    ends_but=run_ends_but,
    below=[DependentRows(table, lambda ids, table=table: table.c.run_id.in_(ids)) for table in BELOW_RUN],  # type: ignore[misc]  # a bound default
)
_ALL = (HISTORIES, RUNS)
_ENTRY = "history entry"
"""Finds the tree of a message at which an erased history ends."""
_ENDS = (_H.head_id, branches.c.entry_id, snapshots.c.head_id)


class _ErasableWhole(erasing.Erasable):
    """Rows that go with everything below them and with the entries that nothing else reaches."""

    key = ("id",)
    batch = 10
    survivors = frozenset((entries.name,))

    def __init__(
        self,
        table: Table,
        by: erasing.By,
        derived_from: ColumnElement[str | None],
        erase: Callable[[UnitOfWork, str], Mapping[str, int] | None],
        left: Sequence[ColumnElement[str]],
        leading: Sequence[erasing.Lead],
    ) -> None:
        self.table, self.by, self.derived_from, self._erase = table, by, derived_from, erase
        self.further = [erasing.SelectorPath(erasing.SESSION, erasing.equal(column), (column,)) for column in left]
        self.leading = [erasing.Lead((table.c.id,), erasing.followed), *leading]

    def erase(self, work: UnitOfWork, keys: Sequence[erasing.Key]) -> erasing.Erased:
        erased = erasing.Erased()
        for (id,) in sorted(keys):
            erased.rows.update(self._erase(work, id) or {})
        return erased


class _Trees(erasing.Erasable):
    """Trees of messages: what is left of those in which nothing ends any more, also where a message was set aside."""

    table = entries
    key = ("root_id",)
    by = {_ENTRY: erasing.equal(_E.id)}  # noqa: RUF012  # read only
    own_streams = False

    def erase(self, work: UnitOfWork, keys: Sequence[erasing.Key]) -> erasing.Erased:
        erased, of = erasing.Erased(), _E.root_id.in_([root for (root,) in keys])
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


def _found(work: UnitOfWork, query: Any) -> list[erasing.Key]:
    return [tuple(row) for row in work.found(query, unreadable=OnUnreadable.LEAVE_OUT)]


def _entries(ends: Select[Any] | CompoundSelect[Any]) -> Rows:
    """The entries that lead to the selected ones; others may share them."""
    walked = lines_to(_E.id.in_(ends))
    in_line = (_E.root_id == walked.c.root_id) & (_E.line_id == walked.c.line_id) & (_E.depth <= walked.c.depth)
    return Rows(entries, select(walked.c.depth).where(in_line).exists(), (_E.root_id, _E.depth, _E.id), shared=True)


_HISTORY = exported(
    Aggregate(histories),
    "history",
    order={branches: (_B.position,)},
    after=(_entries(select(_H.head_id).where(_H.id == the_id()).union(select(_B.entry_id).where(_B.history_id == the_id()))),),
)
"""An export of a conversation, with all messages of its history and its former branches."""
_RUN = exported(Aggregate(runs), "history run", after=(_entries(select(_S.head_id).where(_S.run_id == the_id())),))
"""An export of a run, with its events, its snapshots and their messages, and its tool effects."""
_parent = entries.alias("parent")
# A message is one deeper than the one before it, in its tree, so that in a circle at least one is not.
_misplaced = or_(
    _parent.c.id.is_(None) & _E.parent_id.is_not(None),
    _parent.c.root_id != _E.root_id,
    _parent.c.depth != _E.depth - 1,
    (_parent.c.line_id != _E.line_id) & (_E.line_id != _E.id),
    _E.parent_id.is_(None) & (_E.depth != 0),
)
_MISPLACED = (
    select(_E.id, _E.parent_id)
    .select_from(entries.outerjoin(_parent, _parent.c.id == _E.parent_id))
    .where(_misplaced)
    .order_by(_E.id)
)


def _without_entry(owner: Any, pointer: Any) -> Select[Any]:
    return select(owner, pointer).where(pointer.is_not(None), ~exists().where(_E.id == pointer)).order_by(owner)


_DANGLING = (
    ("history", _without_entry(_H.id, _H.head_id)),
    ("history", _without_entry(_B.history_id, _B.entry_id)),
    ("history run", _without_entry(_S.run_id, _S.head_id)),
)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """A finding for each message that does not follow its parent, and each history whose last message is missing."""
    for id, parent_id in work.found(_MISPLACED, unreadable=OnUnreadable.LEAVE_OUT):
        message = f"it does not follow {named(parent_id)}, so that no history can be read through it."
        yield Problem("history_chain", Severity.ERROR, f"history entry {id}", message)
    for kind, dangling in _DANGLING:
        for id, entry_id in work.found(dangling, unreadable=OnUnreadable.LEAVE_OUT):
            message = f"the message {named(entry_id)}, at which it ends, is gone."
            yield Problem("history_end", Severity.ERROR, f"{kind} {id}", message)


UPKEEP = Upkeep(
    prunings=_ALL,
    erasables=(
        _ErasableWhole(
            runs,
            {erasing.SESSION: erasing.equal(_R.id, _R.conversation_id), erasing.HISTORY: erasing.equal(_R.conversation_id)},
            _R.parent_id,
            lambda work, id: history_runs.erase(work, id, left=True),
            [table.c.run_id for table in BELOW_RUN],
            [erasing.Lead((snapshots.c.run_id,), erasing.found_by(_ENTRY), (snapshots.c.head_id,))],
        ),
        _ErasableWhole(
            histories,
            {erasing.SESSION: erasing.equal(_H.id), erasing.NAMESPACE: erasing.equal(_H.scope)},
            _H.forked_from,
            lambda work, id: records.erase(work, id, left=True),
            [branches.c.history_id],
            [
                erasing.Lead((_H.id,), erasing.found_by(erasing.HISTORY)),
                erasing.Lead((_H.id,), erasing.found_by(_ENTRY), (_H.head_id,)),
                erasing.Lead((branches.c.history_id,), erasing.found_by(_ENTRY), (branches.c.entry_id,)),
            ],
        ),
        _Trees(),
    ),
    exports=(_HISTORY, _RUN),
    checkup=checkup,
    shapes={
        histories.c.usage_json: json_object,
        runs.c.metadata_json: json_object,
        runs.c.newest_keys_json: optional(texts),
        run_events.c.metadata_json: json_object,
    },
)
