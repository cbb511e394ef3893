"""Appending entries: each goes behind its parent in the parent's line, or begins a line where the parent has a successor."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import exists, select

from persist.db.changes.batch import Batch, Pending
from persist.db.schema.arrays import among_labels
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_list, optional_label
from persist.db.values.json import decode
from persist.errors import Conflict, InvalidValue
from persist.histories.models import entries
from persist.histories.schemas import Message, NewEntry
from persist.quoting import named

_E = entries.c
_next = entries.alias("next")
_roots = select(_E.root_id).where(among_labels(_E.id, "ids"))
LOCK_TREES = Statement(select(_E.id).where(_E.id.in_(_roots)).order_by(_E.id).with_for_update())
"""Locks the trees of entries by their roots: other transactions that write to these trees wait until this one ends."""

HAS_NEXT = exists().where(_next.c.root_id == _E.root_id, _next.c.line_id == _E.line_id, _next.c.depth > _E.depth)
_PLACES = Statement(select(_E.id, _E.root_id, _E.line_id, _E.depth, HAS_NEXT).where(among_labels(_E.id, "ids")))
_STORED = Statement(select(_E.parent_id, _E.kind, _E.message_json, _E.extra_json).where(_E.id == param("row_id")))


@dataclass(slots=True)
class Place:
    """Where an entry is: its tree, its line, its depth, and whether another one follows it in its line."""

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
        """The places by id, without entries that are not stored."""
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
    """Checked entries to append, each behind a stored one, behind one that comes before it, or as the first of a history."""

    def __init__(self, work: UnitOfWork, given: object) -> None:
        self._work = work
        self.columns: dict[str, dict[str, Any]] = {}
        """The id of each entry, and its columns but for its place."""
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
                self._check_equal(id, row.result)
        lost = sorted(self.behind - places.keys())
        if lost:
            raise Conflict(f"There is no history entry {named(lost[0])} to continue from.")
        return [
            {**columns, **place(id, columns["parent_id"], places), "created_at": at, "digest": None}
            for id, columns in self.columns.items()
            if id not in places
        ]

    def _check_equal(self, id: str, row: Row | None) -> None:
        own = self.columns[id]
        given = (own["parent_id"], own["kind"], *(self._plain(own[name]) for name in ("message_json", "extra_json")))
        if row is None or tuple(row) != given:
            raise Conflict(f"The id {named(id)} is taken by another history entry.", constraint="pk_history_entries")

    def _plain(self, text: Any) -> Any:
        return None if text is None else decode(text)
