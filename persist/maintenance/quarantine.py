"""Lists the rows that doctor moved to the quarantine, shows their contents and restores them.

The contents of a row are a JSON object:
`database`: the dialect that the cells come from.
`row`: by column, null or an object of one form and its value. Forms in a file: text, text_base64 (bytes that are not UTF-8),
integer, real or blob. Form on a server: the literal that its column type reads.
`let_go`: rows that stayed, whose reference to this row was set to NULL.
`replaced`: the columns that got a substitute value, if the row stayed in its table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from json import loads
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, select

from persist.db.changes.event_streams import key_of
from persist.db.changes.journal import Op
from persist.db.dialects.backends import raw_rows_of
from persist.db.dialects.raw_rows import Cells, RawRows
from persist.db.schema.base import SCHEMA_TOKEN
from persist.db.schema.column_types import Label
from persist.db.statements.prepared import LIMIT, Row, Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.db.values.arguments import check_count
from persist.db.values.frozen import Value, construct
from persist.errors import Conflict, NotFound
from persist.maintenance.hanging import parents_of, referred
from persist.maintenance.setting_aside import note, quarantine, settle, text_of, typed
from persist.maintenance.snapshots import looking
from persist.maintenance.unreadable import bad_cells, columns_of
from persist.schema.metadata import metadata
from persist.store.store import Store

_Q = quarantine.c
_LISTED = (_Q.id, _Q.group_id, _Q.table_name, _Q.row_key, _Q.cause, _Q.moved_at)
_LIST = Statement(select(*_LISTED).where(_Q.id > bindparam("after", type_=Label())).order_by(_Q.id).limit(LIMIT))
_ONE = Statement(select(*_LISTED, _Q.contents).where(_Q.id == bindparam("row_id", type_=Label())))
_GROUP = Statement(
    select(*_LISTED, _Q.contents).where(_Q.group_id == bindparam("group", type_=Label())).order_by(_Q.position).with_for_update()
)
_LEAVE = Statement(delete(quarantine).where(_Q.group_id == bindparam("group", type_=Label())))


class Quarantined(Value):
    """A row in quarantine. Rows moved together share a `group_id`, which is the id of the unreadable row."""

    id: str
    group_id: str
    table: str
    key: str
    cause: str
    moved_at: datetime
    row: dict[str, dict[str, Any] | None] | None
    """The cells by column: None, or an object of one form and its value. The whole attribute is None in lists."""


def quarantined(store: Store, *, after: str | None = None, limit: int = 100) -> list[Quarantined]:
    """List the rows in quarantine without their cells, in the order in which they were moved. `after`: start behind this id."""
    with looking(store, "quarantined()") as work:
        first = "" if after is None else work.label("after", after)
        return [_value(row) for row in work.rows(_LIST, after=first, limit=check_count("limit", limit))]


def quarantined_row(store: Store, id: str) -> Quarantined:
    """Return one row in quarantine with its cells. Raises NotFound if there is none."""
    with looking(store, "quarantined_row()") as work:
        row = work.row(_ONE, row_id=work.label("id", id))
        if row is None:
            raise NotFound("row in quarantine", id)
        return _value(row)


def restore_row(store: Store, id: str) -> list[Quarantined]:
    """Restore a row byte for byte, with the rows moved together with it, in one transaction. Return the restored rows.

    The row is as unreadable as before: restore it to repair it by hand. Raises NotFound if the id is unknown, Conflict if a key
    is in use again, if a referenced row is missing, or if the row comes from a database of another dialect.
    """
    with _unchecked(store) as work, Verb(work, "maintenance.restore_row", writes=True):
        found = work.row(_ONE, row_id=work.label("id", id))
        if found is None:
            raise NotFound("row in quarantine", id)
        group = found[1]
        rows = work.rows(_GROUP, group=group)
        entries = [_value(row) for row in rows]
        contents = [loads(row[-1]) for row in rows]
        let_go = [one for content in contents for one in content.get("let_go", ())]
        changed = [_table(name) for name in {*(entry.table for entry in entries), *(one["table"] for one in let_go)}]
        with work.whole_tables.without_row_guards(changed), work.whole_tables.raw_rows() as raw:
            restoring = _Restoring(work, raw)
            for entry, content in zip(entries, contents, strict=True):
                restoring.row(entry, content)
            restoring.check_parents()
            restoring.tell()
            for one in let_go:
                restoring.hold_again(one)
        work.run(_LEAVE, group=group)
        settle(work, restoring.rows)
    return entries


def _table(name: str) -> Table:
    return metadata.tables[f"{SCHEMA_TOKEN}.{name}"]


class _Restoring:
    def __init__(self, work: UnitOfWork, raw: RawRows) -> None:
        self._work, self._raw = work, raw
        self.rows: list[tuple[Table, Cells]] = []
        self._told = False

    def row(self, entry: Quarantined, content: Mapping[str, Any]) -> None:
        """Insert a row, or write back the cells of it that were replaced."""
        name = f"{entry.table} {entry.key}"
        if content["database"] != self._raw.word:
            raise Conflict(f"{name} was kept by {content['database']}, in forms that this database does not have.")
        table, cells = _table(entry.table), content["row"]
        if unknown := cells.keys() - {*self._raw.names(table)}:
            raise Conflict(f"{entry.table} has no column {sorted(unknown)[0]} any more, which {name} had.")
        if "replaced" in content:
            found = self._raw.find(table, {key: cells[key] for key in key_of(table)})
            if not found:
                raise Conflict(f"{name} is gone, in which cells were replaced.")
            self._raw.set(table, found[0], {column: cells[column] for column in content["replaced"]})
        else:
            self._insert(table, cells, name)
        self.rows.append((table, cells))

    def _insert(self, table: Table, cells: Cells, name: str) -> None:
        try:
            self._raw.insert(table, cells)
        except Exception as error:
            ours = self._work.runtime.errors.classify(error)
            if not isinstance(ours, Conflict):
                raise
            text = f"{name} cannot come back: {ours} Nothing was brought back."
            raise Conflict(text, constraint=ours.constraint) from error

    def check_parents(self) -> None:
        """Raises Conflict unless every readable foreign key of the restored rows finds its parent row."""
        for table, cells in self.rows:
            bad = {cell.column for cell in self._bad(table, cells)}
            for key, parent in parents_of(self._raw, table):
                where = None if bad & {*key.column_keys} else referred(key, cells)
                if where and not self._raw.find(parent, where):
                    text = f"A row of {table.name} refers to a row of {parent.name} that is not there. Nothing was brought back."
                    raise Conflict(text, constraint=str(key.name))

    def tell(self) -> None:
        """Write the rows to the event log, unless one of them is still unreadable: the others depend on it."""
        self._told = self._work.journal is not None and not any(self._bad(*row) for row in self.rows)
        for table, cells in self.rows if self._told else ():
            note(self._work, Op.PUT, table, typed(self._work, self._raw, table, self._place(table, cells), ()))

    def hold_again(self, let_go: Mapping[str, Any]) -> None:
        """Restore a reference that was set to NULL, unless its row is gone or refers to another row now."""
        table, was = _table(let_go["table"]), let_go["was"]
        found = self._raw.find(table, let_go["key"])
        if found and all(self._raw.cells(table, found[0])[name] is None for name in was):
            if self._told:
                row = typed(self._work, self._raw, table, found[0], self._bad(table, let_go["key"]))
                note(self._work, Op.SET, table, row, {name: text_of(cell) for name, cell in was.items()})
            self._raw.set(table, found[0], was)

    def _place(self, table: Table, cells: Cells) -> Any:
        return self._raw.find(table, {name: cells[name] for name in key_of(table)})[0]

    def _bad(self, table: Table, cells: Cells) -> Sequence[Any]:
        columns = columns_of(self._raw, table)
        return bad_cells(columns, self._raw.values(table, self._place(table, cells), columns) or ())


@contextmanager
def _unchecked(store: Store) -> Iterator[UnitOfWork]:
    """A transaction without foreign key checks: an unreadable cell of a restored row may be a reference without a target."""
    dialect = store.runtime.dialect

    def uncheck(connection: Connection) -> Callable[[], None]:
        return raw_rows_of(dialect, dialect.transactions.driver_of(connection)).leave_unchecked()

    work = UnitOfWork(store.runtime, writable=True)
    work.begin(prepare=uncheck)
    try:
        yield work
    except BaseException:
        work.rollback()
        raise
    work.commit()
    for topic, value in work.announcements:
        store.runtime.observers.tell(topic, value)


def _value(row: Row) -> Quarantined:
    names = ("id", "group_id", "table", "key", "cause", "moved_at")
    held = loads(row[len(names)])["row"] if len(row) > len(names) else None
    return construct(Quarantined, {**dict(zip(names, row, strict=False)), "row": held})
