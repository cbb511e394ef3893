"""Reading histories. Entries form trees, and each history is a range of every line of its tree that it came through."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import CTE, ColumnElement, Select, bindparam, select

from persist.db.changes.batch import Batch, Pending
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.counts import UNBOUNDED
from persist.errors import NotFound, StoreCorrupt, UnreadableRow
from persist.histories.models import entries
from persist.histories.schemas import Entry
from persist.histories.validation import whole_number
from persist.quoting import named

_E = entries.c
ENTRY = Values(Entry, entries)


def lines_to(ends: ColumnElement[bool], name: str = "walked") -> CTE:
    """The lines that lead to the entries chosen by a condition: tree, line, and the depth up to which they lead there.

    UNION drops rows that it has seen, so that this ends even where another program has made parents that form a circle.
    """
    walked = select(_E.root_id, _E.line_id, _E.depth).where(ends).cte(name, recursive=True)
    first, parent = entries.alias(f"{name}_first"), entries.alias(f"{name}_parent")
    joined = walked.join(first, first.c.id == walked.c.line_id).join(parent, parent.c.id == first.c.parent_id)
    return walked.union(select(parent.c.root_id, parent.c.line_id, parent.c.depth).select_from(joined))


def history_to(ends: ColumnElement[bool]) -> Select[Any]:
    """The entries that lead to the one that a condition chooses, oldest first."""
    walked = lines_to(ends)
    in_line = (_E.root_id == walked.c.root_id) & (_E.line_id == walked.c.line_id) & (_E.depth <= walked.c.depth)
    return select(*ENTRY.columns).select_from(walked.join(entries, in_line)).order_by(_E.depth, _E.id)


_end = entries.alias("end")
_depth = select(_end.c.depth).where(_end.c.id == param("head_id")).scalar_subquery()
_history = history_to(_E.id == param("head_id")).where(_E.depth > _depth - bindparam("maximum", type_=Int64()))
_HISTORY = Statement(_history, unreadable=OnUnreadable.RAISE)
_READABLE = Statement(_history, unreadable=OnUnreadable.LEAVE_OUT)


class AskedHistory:
    """The last `limit` entries up to a head that are being read with a batch, until `entries` or `readable` returns them."""

    def __init__(self, batch: Batch, head_id: str | None, limit: int | None = None) -> None:
        self._head_id, self._limit = head_id, UNBOUNDED if limit is None else min(limit, UNBOUNDED)
        self._rows: Pending[list[Row]] | None = None
        if head_id is not None and self._limit > 0:
            self._rows = batch.rows(_READABLE, head_id=head_id, maximum=self._limit)

    def entries(self) -> list[Entry]:
        """The entries, oldest first. Raises NotFound without the head, and StoreCorrupt if they are no chain to it."""
        if self._rows is None:
            return []
        assert self._head_id is not None
        return chain(self._head_id, self._rows.result, self._limit)

    def readable(self, work: UnitOfWork) -> list[Entry]:
        """The entries, oldest first, without those that cannot be read. Raises as `entries` does if all can be."""
        try:
            return self.entries()
        except (NotFound, StoreCorrupt):
            try:
                work.rows(_HISTORY, head_id=self._head_id, maximum=self._limit)
            except UnreadableRow:
                assert self._rows is not None
                return [ENTRY(row) for row in self._rows.result]
            raise


def chain(head_id: str, rows: Sequence[Row], limit: int = UNBOUNDED) -> list[Entry]:
    """The last `limit` entries up to a head, from their rows. Raises NotFound without any, StoreCorrupt if they are no chain."""
    if not rows:
        raise NotFound("history entry", head_id)
    found = [ENTRY(row) for row in rows]
    is_whole = len(found) < limit
    follow = all(entry.parent_id == before.id for before, entry in pairwise(found))
    if not follow or found[-1].id != head_id or (is_whole and found[0].parent_id is not None):
        reason = f"the messages that lead to {named(head_id)} are no chain; persist doctor names what is wrong."
        raise StoreCorrupt("history_entries", reason)
    return found


_GET = Statement(select(*ENTRY.columns).where(entries.c.id == param("row_id")))


class HistoryEntries(Repository[F]):
    """`tx.histories.entries`. They are stored by `tx.histories.records.put`, and never changed."""

    @reads
    def get(self, id: str) -> Entry:
        """The entry. Raises NotFound."""
        return ENTRY.found(self._work.row(_GET, row_id=self._work.label("id", id)), "history entry", id)

    @reads
    def list(self, head_id: str, *, limit: int | None = None) -> list[Entry]:
        """The entries from the first one to `head_id`, in order, or the last `limit` of them; none that cannot be read.

        Raises NotFound for an unknown head, and StoreCorrupt if another program's rows are no chain of messages.
        """
        work = self._work
        head_id = work.label("head_id", head_id)
        maximum = None if limit is None else whole_number("limit", limit, minimum=0)
        with work.batch() as batch:
            asked = AskedHistory(batch, head_id, maximum)
        return asked.readable(work)
