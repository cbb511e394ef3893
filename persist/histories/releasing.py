"""Deleting entries that no conversation and no snapshot of a run reaches any more."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, Select, bindparam, delete, exists, func, not_, or_, select

from persist.db.changes.batch import Batch, Pending
from persist.db.schema.arrays import among_labels
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.histories.models import branches, entries, histories, runs, snapshots

Condition = ColumnElement[bool]

_E, _H, _B, _R, _S = entries.c, histories.c, branches.c, runs.c, snapshots.c
_parent, _first, _end = entries.alias("parent"), entries.alias("first"), entries.alias("end")
_behind = (_E.root_id == param("root_id"), _E.line_id == param("line_id"), _E.depth > bindparam("reached", type_=Int64()))
_DELETE = Statement(delete(entries).where(*_behind))
_COUNT = Statement(select(func.count()).select_from(entries).where(*_behind))


def _reached(in_trees: Condition, others: Condition) -> Select[Any]:
    """Lines with the depth up to which something reaches them by an end in the line itself."""
    return select(_E.line_id, func.max(_E.depth)).where(in_trees, others).group_by(_E.line_id)


def _lines(in_trees: Condition) -> Select[Any]:
    """The lines of trees: root, line, depth of its first entry; line and depth of the entry that this one follows."""
    lines = select(_E.root_id, _E.line_id).where(in_trees).distinct().subquery("lines")
    joined = lines.join(_first, _first.c.id == lines.c.line_id).outerjoin(_parent, _parent.c.id == _first.c.parent_id)
    return select(lines.c.root_id, lines.c.line_id, _first.c.depth, _parent.c.line_id, _parent.c.depth).select_from(joined)


def _beyond(reached: Sequence[Row], lines: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Each line with the depth behind which nothing reaches it; -1: nothing does."""
    depths: dict[str, int] = dict(reached)
    # a line begins behind an entry of smaller depth, so that the deepest are decided first
    for root_id, line_id, _, parent_line, parent_depth in sorted(lines, key=lambda row: -row[2]):
        if parent_line is not None and line_id in depths:
            depths[parent_line] = max(depths.get(parent_line, -1), parent_depth)
        yield {"root_id": root_id, "line_id": line_id, "reached": depths.get(line_id, -1)}


class Releasing:
    """What has to be known before entries are released: of the trees that contain the `ends` of histories that are to go.

    ends    selects the ids of these entries
    others  whether something else than what is to go ends at an entry
    """

    def __init__(self, ends: Select[Any] | CompoundSelect[Any], others: ColumnElement[bool]) -> None:
        roots = select(_E.root_id).where(_E.id.in_(ends))
        in_trees = _E.root_id.in_(roots)
        self.lock = Statement(select(_E.id).where(_E.id.in_(roots)).order_by(_E.id).with_for_update())
        self.reached, self.lines = Statement(_reached(in_trees, others)), Statement(_lines(in_trees))


class AskedReleasing:
    """The answers to a Releasing, read with a batch after the trees are locked."""

    def __init__(self, batch: Batch, releasing: Releasing, **values: Any) -> None:
        batch.lock(releasing.lock, **values)
        self._reached: Pending[list[Row]] = batch.rows(releasing.reached, **values)
        self._lines: Pending[list[Row]] = batch.rows(releasing.lines, **values)

    def delete(self, batch: Batch) -> list[Pending[int]]:
        """Delete with a batch what nothing else reaches; how many rows, line by line."""
        return [batch.run(_DELETE, **line) for line in _beyond(self._reached.result, self._lines.result)]


def count_released(work: UnitOfWork, roots: Sequence[str], reached: Condition) -> int:
    """How many entries in the trees of `roots` nothing reaches; `reached`: the condition that something ends at an entry."""
    in_trees = _E.root_id.in_(roots)
    ends, lines = work.found(_reached(in_trees, reached)), work.found(_lines(in_trees))
    with work.batch() as batch:
        counts = [batch.row(_COUNT, **line) for line in _beyond(ends, lines)]
    return sum(0 if one.result is None else int(one.result[0]) for one in counts)


def history_ends(among: Condition) -> Condition:
    """Whether one of those `among` the conversations ends at the entry, or a branch that it has left."""
    left = exists().where(_B.entry_id == _E.id, _H.id == _B.history_id, among)
    return or_(exists().where(_H.head_id == _E.id, among), left)


def history_ends_but(going: Condition) -> Condition:
    """Whether anything ends at the entry as `history_ends` says, but for the conversations that are `going`.

    What is left of one that is gone without its branches, which a raw writer deleted, still holds the entry.
    """
    left = exists().where(_B.entry_id == _E.id, ~exists().where(_H.id == _B.history_id, going))
    return or_(exists().where(_H.head_id == _E.id, not_(going)), left)


def run_ends(among: Condition) -> Condition:
    """Whether a snapshot of one of those `among` the runs ends at the entry."""
    return exists().where(_S.head_id == _E.id, _R.id == _S.run_id, among)


def run_ends_but(going: Condition) -> Condition:
    """Whether a snapshot of any run ends at the entry, but for the runs that are `going`; see `history_ends_but`."""
    return exists().where(_S.head_id == _E.id, ~exists().where(_R.id == _S.run_id, going))


_run_ends = exists().where(_S.head_id == _E.id)
_history_ends = or_(exists().where(_H.head_id == _E.id), exists().where(_B.entry_id == _E.id))
_history, _run = param("history_id"), param("run_id")

OF_HISTORY = Releasing(
    select(_H.head_id).where(_H.id == _history).union(select(_B.entry_id).where(_B.history_id == _history)),
    or_(
        exists().where(_H.head_id == _E.id, _H.id != _history),
        exists().where(_B.entry_id == _E.id, _B.history_id != _history),
        _run_ends,
    ),
)
"""For a conversation `history_id` that is to be deleted."""

OF_RUN = Releasing(
    select(_S.head_id).where(_S.run_id == _run), or_(exists().where(_S.head_id == _E.id, _S.run_id != _run), _history_ends)
)
"""For a run `run_id` that is to be deleted."""

OF_ENTRIES = Releasing(select(_end.c.id).where(among_labels(_end.c.id, "ids")), or_(_run_ends, _history_ends))
"""For entries `ids` at which nothing ends any more."""
