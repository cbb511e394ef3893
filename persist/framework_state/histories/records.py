"""`tx.histories.records`: conversations. Each ends a chain of messages, which conversations may share."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Select,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    not_,
    or_,
    select,
    update,
)

from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.upsert import insert_missing, insert_where
from persist.db.operations.keyset import Keyset
from persist.db.schema.column_types import Int64, among_labels, labels_array
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import UNBOUNDED, check_list, optional_label
from persist.db.values.clock import as_utc
from persist.db.values.pages import Page
from persist.errors import Conflict, named
from persist.framework_state.histories.appending import NewEntries, Places
from persist.framework_state.histories.models import branches, entries, histories, runs, snapshots
from persist.framework_state.histories.schemas import History, NewEntry, whole_number

Condition = ColumnElement[bool]
_E = entries.c
_H = histories.c
_B = branches.c
_R = runs.c
_S = snapshots.c
_parent, _first, _end = entries.alias("parent"), entries.alias("first"), entries.alias("end")
_behind = (_E.root_id == param("root_id"), _E.line_id == param("line_id"), _E.depth > bindparam("reached", type_=Int64()))
_DELETE_ENTRIES = Statement(delete(entries).where(*_behind))
_COUNT = Statement(select(func.count()).select_from(entries).where(*_behind))


def _reached_in_trees(in_trees: Condition, others: Condition) -> Select[Any]:
    """Lines with the depth up to which something reaches them by an end in the line itself."""
    return select(_E.line_id, func.max(_E.depth)).where(in_trees, others).group_by(_E.line_id)


def _lines(in_trees: Condition) -> Select[Any]:
    """The lines of trees: root, line, depth of its first entry; line and depth of the entry before the first one."""
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
    """The queries to ask before entries of trees are released: `ends` selects last entries, `others` those of what remains."""

    def __init__(self, ends: Select[Any] | CompoundSelect[Any], others: ColumnElement[bool]) -> None:
        roots = select(_E.root_id).where(_E.id.in_(ends))
        in_trees = _E.root_id.in_(roots)
        self.lock = Statement(select(_E.id).where(_E.id.in_(roots)).order_by(_E.id).with_for_update())
        self.reached, self.lines = Statement(_reached_in_trees(in_trees, others)), Statement(_lines(in_trees))


class AskedReleasing:
    """The answers to a Releasing, read with a batch after the trees are locked."""

    def __init__(self, batch: Batch, releasing: Releasing, **values: Any) -> None:
        batch.lock(releasing.lock, **values)
        self._reached: Pending[list[Row]] = batch.rows(releasing.reached, **values)
        self._lines: Pending[list[Row]] = batch.rows(releasing.lines, **values)

    def delete(self, batch: Batch) -> list[Pending[int]]:
        """Delete with a batch what nothing else reaches; how many rows, line by line."""
        return [batch.run(_DELETE_ENTRIES, **line) for line in _beyond(self._reached.result, self._lines.result)]


def count_released(work: UnitOfWork, roots: Sequence[str], reached: Condition) -> int:
    """How many entries in the trees of `roots` nothing reaches; `reached`: the condition that something ends at an entry."""
    in_trees = _E.root_id.in_(roots)
    ends, lines = work.found(_reached_in_trees(in_trees, reached)), work.found(_lines(in_trees))
    with work.batch() as batch:
        counts = [batch.row(_COUNT, **line) for line in _beyond(ends, lines)]
    return sum(0 if one.result is None else int(one.result[0]) for one in counts)


def history_ends(among: Condition) -> Condition:
    """Whether one of those `among` the conversations ends at the entry, or a branch that it has left."""
    left = exists().where(_B.entry_id == _E.id, _H.id == _B.history_id, among)
    return or_(exists().where(_H.head_id == _E.id, among), left)


def history_ends_but(going: Condition) -> Condition:
    """Whether anything but the `going` conversations ends at the entry, also a branch that a raw writer left alone."""
    left = exists().where(_B.entry_id == _E.id, ~exists().where(_H.id == _B.history_id, going))
    return or_(exists().where(_H.head_id == _E.id, not_(going)), left)


def run_ends(among: Condition) -> Condition:
    """Whether a snapshot of a run that meets `among` ends at the entry."""
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
List = list
# written as text: SQLAlchemy relates no subquery of a FROM clause to the row around it
_of_row = literal_column(f"{histories.name}.id", _H.id.type)
_left = labels_array(select(_B.entry_id, _B.position).where(_B.history_id == _of_row)).label("branches")
_HISTORY = Values(History, histories, branches=_left)
_NEWEST = Keyset("histories.records", _HISTORY, (_H.updated_at, _H.id), {"scope": _H.scope == param("scope")}, exact=True)
_this = _H.id == param("row_id")
_GET = Statement(select(*_HISTORY.columns).where(_this))
_STATE = Statement(select(_H.revision, _H.updated_at, _H.deferred_json.is_not(None)).where(_this))
_LOCK = Statement(select(_H.id).where(_this).with_for_update())
_CREATE = Statement(insert_missing(histories, "id"))
_SET = {
    column.name: bindparam(f"new_{column.name}", type_=column.type) for column in _H if column.name not in ("id", "created_at")
}
_REPLACE = Statement(update(histories).where(_this, _H.revision == param("expected")).values(**_SET))
# nothing is written below a conversation unless it has just been written: `of_revision` is new
_written = exists().where(
    _H.id == bindparam("of_history", type_=_H.id.type), _H.revision == bindparam("of_revision", type_=_H.revision.type)
)
_ADD_ENTRY = Statement(insert_where(entries, _written))
_ADD_BRANCH = Statement(insert_where(branches, _written))
_CLEAR_BRANCHES = Statement(delete(branches).where(_B.history_id == param("of_history"), _written))
_DELETE_BRANCHES = Statement(delete(branches).where(_B.history_id == param("history_id")))
_DELETE = Statement(delete(histories).where(_this))


class HistoryRecords(Repository[F]):
    """`tx.histories.records`."""

    @reads
    def find(self, id: str) -> History | None:
        """The conversation; None if there is none."""
        return _HISTORY.optional(self._work.row(_GET, row_id=self._work.label("id", id, empty=True)))

    @reads
    def get(self, id: str) -> History:
        """The conversation. Raises NotFound."""
        return _HISTORY.found(self._work.row(_GET, row_id=self._work.label("id", id, empty=True)), "history", id)

    @reads
    def list(self, *, scope: str | None = None, limit: int = 20, after: str | None = None) -> Page[History]:
        """Conversations, the one written last first. Pass a page's `cursor` as `after` for the next page."""
        return _NEWEST.page(self._work, limit, after, _scoped(self._work, scope))

    @reads
    def latest(self, *, scope: str | None = None, limit: int | None = None) -> List[History]:
        """The conversations, the one written last first; at most `limit` of them."""
        filters = _scoped(self._work, scope)
        maximum = UNBOUNDED if limit is None else min(whole_number("limit", limit, minimum=0), UNBOUNDED)
        return _NEWEST.first(self._work, maximum, filters)

    @writes
    def put(
        self,
        id: str,
        *,
        revision: str,
        expected_revision: str | None,
        head_id: str | None,
        updated_at: datetime,
        entries: Sequence[NewEntry] = (),
        branches: Sequence[str] = (),
        scope: str | None = None,
        forked_from: str | None = None,
        forked_at: str | None = None,
        usage: Mapping[str, Any] | None = None,
        deferred: Any = None,
        format_version: int = 1,
    ) -> None:
        """Store a conversation with the entries that its history adds, or replace the one of revision `expected_revision`.

        Raises Conflict, and stores nothing, if another revision is stored, if one is stored where None was expected, or if
        neither the store nor `entries` has the head or an entry that a new one follows.
        """
        work = self._work
        new = NewEntries(work, entries)
        now = work.now()
        row = {
            "id": work.label("id", id, empty=True),
            "head_id": optional_label("head_id", head_id),
            "scope": optional_label("scope", scope, empty=True),
            "forked_from": optional_label("forked_from", forked_from, empty=True),
            "forked_at": optional_label("forked_at", forked_at),
            "revision": work.label("revision", revision),
            "format_version": whole_number("format_version", format_version),
            "created_at": now,
            "updated_at": as_utc("updated_at", updated_at),
            "usage_json": work.json("usage", work.json_object("usage", usage)),
            "deferred_json": None if deferred is None else work.json("deferred", deferred),
        }
        left = [work.label(f"branches[{index}]", tip) for index, tip in enumerate(check_list("branches", branches))]
        expected = optional_label("expected_revision", expected_revision)
        needed = new.behind | new.columns.keys() | ({head_id} if head_id is not None else set())
        with work.batch() as batch:
            batch.lock(_LOCK, row_id=id)
            found = batch.row(_GET, row_id=id)
            asked = Places(batch, needed)
        stored = _HISTORY.optional(found.result)
        if (None if stored is None else stored.revision) != expected:
            raise _changed(id)
        places = asked.found()
        if head_id is not None and head_id not in places and head_id not in new.columns:
            raise Conflict(f"There is no history entry {named(head_id)}, at which the history {named(id)} would end.")
        rows = new.rows(places, now)
        written = {"of_history": id, "of_revision": revision}
        with work.batch(last=True) as batch:
            if stored is None:
                done = batch.run(_CREATE, **row)
            else:
                done = batch.run(_REPLACE, row_id=id, expected=expected, **{f"new_{name}": row[name] for name in _SET})
            batch.run_many(_ADD_ENTRY, [{**written, **one} for one in rows])
            if left != ([] if stored is None else stored.branches):
                _put_branches(batch, written, left)
        if not done.result:
            raise _changed(id)

    @writes
    def delete(self, id: str, *, expected_revision: str | None = None) -> bool:
        """Delete a conversation and entries that nothing else reaches; False if unknown. Raises Conflict for another revision."""
        work = self._work
        expected = optional_label("expected_revision", expected_revision)
        gone = erase(work, work.label("id", id, empty=True), expected)
        if gone is None and expected is not None:
            raise _changed(id)
        return gone is not None


def erase(
    work: UnitOfWork, id: str, expected: str | None = None, before: datetime | None = None, *, left: bool = False
) -> dict[str, int] | None:
    """Delete a conversation, release its entries; rows by table. None if revision or `before` forbid it. `left`: remains, too."""
    with work.batch() as batch:
        batch.lock(_LOCK, row_id=id)
        found = batch.row(_STATE, row_id=id)
        asked = AskedReleasing(batch, OF_HISTORY, history_id=id)
    row = found.result
    if row is None:
        if not left:
            return None
    elif (expected is not None and row[0] != expected) or (before is not None and (row[1] >= before or row[2])):
        return None
    with work.batch(last=True) as batch:
        below = batch.run(_DELETE_BRANCHES, history_id=id)
        released = asked.delete(batch)
        gone = batch.run(_DELETE, row_id=id)
    return {histories.name: gone.result, branches.name: below.result, entries.name: sum(one.result for one in released)}


def _put_branches(batch: Batch, written: Mapping[str, str], left: Sequence[str]) -> None:
    batch.run(_CLEAR_BRANCHES, **written)
    rows = [{"history_id": written["of_history"], "position": at, "entry_id": tip} for at, tip in enumerate(left)]
    batch.run_many(_ADD_BRANCH, [{**written, **row} for row in rows])


def _scoped(work: UnitOfWork, scope: str | None) -> dict[str, str]:
    return {} if scope is None else {"scope": work.label("scope", scope, empty=True)}


def _changed(id: str) -> Conflict:
    return Conflict(f"The history {named(id)} is there already, or was changed or deleted since it was read: read it again.")
