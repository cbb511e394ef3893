"""Appending entries: each goes behind its parent in the parent's line, or begins a line where the parent has a successor."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from sqlalchemy import CTE, ColumnElement, Select, bindparam, exists, select

from persist.db.changes.batch import Batch, Pending
from persist.db.schema.column_types import Int64, among_labels
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.arguments import UNBOUNDED, check_list, optional_label
from persist.db.values.json import decode
from persist.errors import Conflict, InvalidValue, NotFound, StoreCorrupt, UnreadableRow, named
from persist.framework_state.histories.models import entries
from persist.framework_state.histories.schemas import Entry, Message, NewEntry, whole_number

_E = entries.c
ENTRY = Values(Entry, entries)


def lines_to(ends: ColumnElement[bool], name: str = "walked") -> CTE:
    """The lines to the entries that a condition chooses, each with the depth up to which. UNION ends at a circle of parents."""
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


_next = entries.alias("next")
_roots = select(_E.root_id).where(among_labels(_E.id, "ids"))
LOCK_TREES = Statement(select(_E.id).where(_E.id.in_(_roots)).order_by(_E.id).with_for_update())
"""Locks the roots of trees of entries: other transactions that write to a tree wait until this one ends."""
HAS_NEXT = exists().where(_next.c.root_id == _E.root_id, _next.c.line_id == _E.line_id, _next.c.depth > _E.depth)
_PLACES = Statement(select(_E.id, _E.root_id, _E.line_id, _E.depth, HAS_NEXT).where(among_labels(_E.id, "ids")))
_STORED = Statement(select(_E.parent_id, _E.kind, _E.message_json, _E.extra_json).where(_E.id == param("row_id")))


@dataclass(slots=True)
class Place:
    """The place of an entry: tree, line, depth, and whether the line goes on after the entry."""

    root_id: str
    line_id: str
    depth: int
    has_next: bool


class Places:
    """The places of stored entries, read with a batch after their trees are locked."""

    def __init__(self, batch: Batch, ids: Iterable[str]) -> None:
        self._rows: Pending[list[Row]] | None = None
        if wanted := sorted(set(ids)):
            batch.lock(LOCK_TREES, ids=wanted)
            self._rows = batch.rows(_PLACES, ids=wanted)

    def found(self) -> dict[str, Place]:
        rows = [] if self._rows is None else self._rows.result
        return {id: Place(root, line, depth, bool(taken)) for id, root, line, depth, taken in rows}


def place(id: str, parent_id: str | None, places: dict[str, Place]) -> dict[str, Any]:
    """The columns that say where a new entry is, whose parent is in `places`; it is added to them."""
    parent = None if parent_id is None else places[parent_id]
    if parent is None:
        own = Place(id, id, 0, False)
    else:
        own = Place(parent.root_id, id if parent.has_next else parent.line_id, parent.depth + 1, False)
        parent.has_next = True
    places[id] = own
    return {"id": id, "parent_id": parent_id, "root_id": own.root_id, "line_id": own.line_id, "depth": own.depth}


def message_columns(work: UnitOfWork, path: str, message: Message) -> dict[str, Any]:
    """The checked columns of a message."""
    if not isinstance(message, Message):
        raise InvalidValue(path, f"expected a Message, got {type(message).__name__}.")
    return {
        "kind": work.label(f"{path}.kind", message.kind),
        "message_json": work.json(f"{path}.data", message.data),
        "extra_json": None if message.extra is None else work.json(f"{path}.extra", message.extra),
    }


class NewEntries:
    """Checked entries to append: each follows a stored entry or an earlier new one, or begins a history."""

    def __init__(self, work: UnitOfWork, given: object) -> None:
        self._work = work
        self.columns: dict[str, dict[str, Any]] = {}
        """The columns of each entry without its place, by id."""
        self.behind: set[str] = set()
        """The ids of stored entries behind which they belong."""
        parents: dict[str, str | None] = {}
        for index, entry in enumerate(check_list("entries", given)):
            path = f"entries[{index}]"
            if not isinstance(entry, NewEntry):
                raise InvalidValue(path, f"expected a NewEntry, got {type(entry).__name__}.")
            id = work.label(f"{path}.id", entry.id)
            parent_id = optional_label(f"{path}.parent_id", entry.parent_id)
            if id in parents:
                raise InvalidValue(f"{path}.id", f"{named(id)} is given twice.")
            if parent_id is not None and parent_id not in parents:
                self.behind.add(parent_id)
            parents[id] = parent_id
            self.columns[id] = {"parent_id": parent_id, **message_columns(work, f"{path}.message", entry.message)}
        if circle := self.behind & parents.keys():
            raise InvalidValue("entries", f"{named(min(circle))} comes before the entry that it follows.")

    def rows(self, places: dict[str, Place], at: datetime) -> list[dict[str, Any]]:
        """The rows to insert. Entries that are stored already are left out, if they are equal. Raises Conflict if they differ."""
        stored = [id for id in self.columns if id in places]
        if stored:
            with self._work.batch() as batch:
                found = {id: batch.row(_STORED, row_id=id) for id in stored}
            for id, row in found.items():
                own = self.columns[id]
                given = (own["parent_id"], own["kind"], *(self._plain(own[name]) for name in ("message_json", "extra_json")))
                if row.result is None or tuple(row.result) != given:
                    raise Conflict(f"The id {named(id)} is taken by another history entry.", constraint="pk_history_entries")
        lost = sorted(self.behind - places.keys())
        if lost:
            raise Conflict(f"There is no history entry {named(lost[0])} to continue from.")
        return [
            {**columns, **place(id, columns["parent_id"], places), "created_at": at, "digest": None}
            for id, columns in self.columns.items()
            if id not in places
        ]

    def _plain(self, text: Any) -> Any:
        return None if text is None else decode(text)
