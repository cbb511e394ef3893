"""Rows that the tables may have no more: those of which the event log tells, and those in the quarantine."""

from collections.abc import Iterator, Mapping, Sequence
from json import dumps, loads
from typing import Any

from sqlalchemy import Column, Table, select

from persist.db.schema.column_types import Label
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.events.erasing import changes_in, named_in
from persist.maintenance.setting_aside import quarantine, text_of
from persist.schema.metadata import metadata

_PART = 200
_Q = quarantine.c
TABLES = {str(table.name): table for table in metadata.sorted_tables}
Cells = Mapping[str, Any]


def logged_rows(work: UnitOfWork) -> Iterator[tuple[Table, Mapping[str, Any], Cells, bool]]:
    """Each row that an event is about: its table, its values, the text of its cells, and whether it was written or deleted."""
    for stream, change in changes_in(work):
        table = TABLES.get(str(change["table"]))
        if table is not None:
            values = named_in(table, stream, change)
            cells = {name: str(cell) for name, cell in values.items() if isinstance(cell, str | int)}
            yield table, values, cells, change.get("op") == "put"


def quarantined_rows(work: UnitOfWork) -> Iterator[tuple[str, Cells]]:
    """Each row of the quarantine: its table, and the text of its cells."""
    for _, _, table, cells in quarantined_cells(work):
        yield table, cells


def quarantined_cells(work: UnitOfWork, *, whole: bool = False) -> Iterator[tuple[str, str, str, Cells]]:
    """Each row of the quarantine: its id and group, its table, and the text of its cells.

    `whole`: what is no text has a text of its own, which no text that is stored equals.
    """
    after = ""
    while True:
        query = select(_Q.id, _Q.group_id, _Q.table_name, _Q.contents).where(_Q.id > after).order_by(_Q.id).limit(_PART)
        found: Sequence[Any] = work.found(query, unreadable=OnUnreadable.LEAVE_OUT)
        for id, group, table, contents in found:
            yield id, group, table, {name: _plain(cell, whole) for name, cell in loads(contents)["row"].items()}
        if len(found) < _PART:
            return
        after = found[-1][0]


def types_in_log(column: Column[Any]) -> tuple[type, ...]:
    """The types of the values that the log can have of a column in a key."""
    if isinstance(column.type, Label):
        return (str,)
    return (int,) if column.type.python_type is int else (str, int, float)


def _plain(cell: Any, whole: bool) -> Any:
    if not isinstance(cell, dict):
        return None
    found = str(cell["integer"]) if "integer" in cell else text_of(cell)
    return f"\0{dumps(cell, sort_keys=True)}" if whole and found is None else found
