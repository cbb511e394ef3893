"""The quarantine: moving a row that cannot be read out of its table, with all rows that depend on it, and back."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from json import dumps, loads
from typing import Any

from sqlalchemy import Connection, ForeignKeyConstraint, Table, bindparam, delete, exists, insert, or_, select, type_coerce
from sqlalchemy.types import NullType

from persist.chat.models import messages as chat_messages
from persist.chat.models import sessions as chat_sessions
from persist.chat.storage.usage import recompute
from persist.db.changes.journal import Change, Op, key_of, place_of
from persist.db.dialects.backends import raw_rows_of
from persist.db.dialects.raw_rows import Cell, Cells, Place, RawRows
from persist.db.schema.base import SCHEMA_TOKEN, table_of
from persist.db.schema.column_types import Label
from persist.db.schema.meta_table import QuarantineRow
from persist.db.statements.prepared import LIMIT, Row, Statement
from persist.db.transactions.unit_of_work import StandIns, UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.db.values.arguments import check_count, must_exist
from persist.db.values.frozen import Value, construct
from persist.domains import upkeeps
from persist.errors import Conflict, InvalidValue, StoreCorrupt
from persist.events.models import event_heads
from persist.events.upkeep import count_again
from persist.maintenance.table_keys import hanging_on, parents_of, referred
from persist.maintenance.transactions import looking
from persist.maintenance.unreadable import Bad, bad_cells, columns_of, key_text
from persist.schema.metadata import metadata
from persist.store.store import Store

STAND_INS: StandIns = {column: stand_in for upkeep in upkeeps().values() for column, stand_in in upkeep.stand_ins.items()}
"""Columns whose unreadable cells get a substitute value in place. A row with another unreadable cell is moved."""

HANGING = {table: hangs for upkeep in upkeeps().values() for table, hangs in upkeep.hanging.items()}
"""By table, what is of no use without a row of it though no foreign key says so."""

quarantine = table_of(QuarantineRow)
_KEEP = Statement(insert(quarantine))
_NAMED = 10


def set_aside(work: UnitOfWork, *, table: Table, key: Cells) -> str | None:
    """Move the rows with this key that are still unreadable. Return what was done, or None if no such row is left."""
    said = []
    with work.whole_tables.raw_rows() as raw:
        aside = _Aside(work, raw)
        columns = columns_of(raw, table)
        for place in raw.find(table, key):
            values = raw.values(table, place, columns)
            bad = [] if values is None else bad_cells(columns, values)
            if not all(cell.word for cell in bad):
                said.append(aside.row(table, place, bad))
    settle(work, aside.moved)
    return " ".join(said) or None


def goes_with_parent(key: ForeignKeyConstraint) -> bool:
    """Whether a row goes with the one it refers to: the database deletes it, or the verb does, as it is named by its parent."""
    return key.ondelete == "CASCADE" or all(column.primary_key for column in key.columns)


def set_orphans_aside(work: UnitOfWork, *, table: Table) -> str | None:
    """Move those rows of a table that would have gone with a missing row, had the database checked its foreign keys.

    Return what was done, or None if there is no such row. Where a row of the parent's table lacks its key, all stay.
    """
    with work.whole_tables.raw_rows() as raw:
        aside = _Aside(work, raw)
        names = key_of(table)
        for key, parent in parents_of(raw, table):
            if not goes_with_parent(key):
                continue
            of, theirs = table.alias("of"), parent.alias("theirs")
            pairs = [(of.c[element.parent.name], theirs.c[element.column.name]) for element in key.elements]
            without = ~exists().where(*(ours == its for ours, its in pairs)).correlate(of)
            nameless = exists().where(or_(*(its.is_(None) for _, its in pairs)))  # a parent without a key may be theirs
            query = select(*(type_coerce(of.c[name], NullType()) for name in names)).where(
                *(ours.is_not(None) for ours, _ in pairs), without, ~nameless
            )
            for values in work.select(query).fetchall():
                for place in raw.find(table, {name: raw.cell(value) for name, value in zip(names, values, strict=True)}):
                    aside.move(table, place, f"It refers to a row of {parent.name} that is not there.")
    settle(work, aside.moved)
    return f"Moved to quarantine, with what hangs on them: {len(aside.moved):,} rows." if aside.moved else None


def set_incomplete_aside(work: UnitOfWork, *, table: Table, key: Mapping[str, Any], cause: str) -> str | None:
    """Move a row that lacks what it consists of, with what cannot be read without it. Return what was done; None: it is gone."""
    with work.whole_tables.raw_rows() as raw:
        aside = _Aside(work, raw)
        said = [aside.move(table, place, cause) for place in raw.find(table, {name: raw.cell(key[name]) for name in key})]
    return " ".join(said) or None


def settle(work: UnitOfWork, rows: Sequence[tuple[Table, Cells]]) -> None:
    """Recompute the usage sums of the chat sessions whose messages were moved or restored."""
    messages = {text_of(cells["session_id"]) for table, cells in rows if table is chat_messages}
    whole = {text_of(cells["id"]) for table, cells in rows if table is chat_sessions}
    for session in sorted(messages - whole - {None}):
        try:
            recompute(work, session)
        except Exception as error:  # other rows of the session are unreadable too, and are moved next
            if not isinstance(work.runtime.translate(error), InvalidValue | StoreCorrupt | TypeError):
                raise


def text_of(cell: Cell) -> Any:
    """Return the text of a cell, or None if the cell holds no text."""
    return None if cell is None else cell.get("text", cell.get("literal"))


def typed(work: UnitOfWork, raw: RawRows, table: Table, place: Place, bad: Sequence[Bad]) -> dict[str, Any]:
    """Return the readable columns of a row, as Python values of their column types."""
    unreadable = {cell.column for cell in bad}
    there = [column for column in table.columns if column.name in {*raw.names(table)} - unreadable]
    row = work.select(select(*there).where(raw.at(table, place))).first()
    return {} if row is None else {str(column.name): value for column, value in zip(there, row, strict=True)}


def note(work: UnitOfWork, op: Op, table: Table, row: Mapping[str, Any], values: Mapping[str, Any] | None = None) -> None:
    """Journal a change, if the log is on and the key is readable; not of deltas, whose text is in events of another table."""
    place, key = place_of(table), key_of(table)
    if work.journal is None or place is None or "deltas_of" in table.info or not {*key} <= row.keys():
        return
    if op is not Op.PUT:
        names = dict.fromkeys([*key, *(name for name in (place.column, place.through) if name is not None)])
        row = {**{name: row.get(name) for name in names}, **(values or {})}
    work.journal.add([Change(table, op, row)])


class _Aside:
    """Moves rows to the quarantine within one transaction. `moved` lists the rows that were moved."""

    def __init__(self, work: UnitOfWork, raw: RawRows) -> None:
        self.work, self.raw = work, raw
        self.moved: list[tuple[Table, Cells]] = []
        self.useless: set[tuple[Table, Place]] = set()
        """Rows that go along though no foreign key says so."""
        self.read: dict[Any, Any] = {}

    def _further(self, table: Table, place: Place) -> Iterator[tuple[Table, Mapping[str, Any], str | None]]:
        """What is of no use without a row, as its domain says."""
        hangs = HANGING.get(table)
        row = {} if hangs is None else self._readable(table, place)
        if hangs is None or not {*key_of(table)} <= row.keys():
            return
        for of, key, column in hangs(self.work, row, self.read):
            if column is None:
                cells = {name: self.raw.cell(value) for name, value in key.items()}
                self.useless.update((of, at) for at in self.raw.find(of, cells))
            yield of, key, column

    def row(self, table: Table, place: Place, bad: Sequence[Bad]) -> str:
        """Move one row, or replace its unreadable cells. Return what was done, as a sentence."""
        cause = " ".join(cell.reason for cell in bad)
        if all(table.c[cell.column] in STAND_INS for cell in bad):
            group = self.work.runtime.ids.mint("qua")
            if self._replace(table, place, bad, group, cause):
                return f"Its row is kept as {group}, and what cannot be read was replaced."
        return self.move(table, place, cause)

    def move(self, table: Table, place: Place, cause: str) -> str:
        """Move one row with what hangs on it. Return what was done, as a sentence."""
        group = self.work.runtime.ids.mint("qua")
        hanging = hanging_on(self.raw, table, place, self._further)
        name = f"{table.name} {self._key(table, self.raw.cells(table, place))}"
        names = [(f"{of.name} {self._key(of, self.raw.cells(of, at))}", (of, at)) for of, at in hanging.rows if self.useless]
        for position, (of, at) in enumerate(hanging.rows):
            first = (of, at) == (table, place)
            cells = self.raw.cells(of, at)
            loose = self._loose(hanging.loose, of, cells) if first else []
            contents = {"database": self.raw.word, "row": cells, **({"let_go": loose} if loose else {})}
            id = group if first else self.work.runtime.ids.mint("qua")
            self._keep(of, id, group, position, cause if first else f"It hangs on {name}.", contents)
            self.moved.append((of, cells))
        for (of, at), columns in hanging.loose.items():
            note(self.work, Op.SET, of, self._typed(of, at), dict.fromkeys(columns))
            self.raw.set(of, at, dict.fromkeys(columns))
        for of, at in reversed(hanging.rows):
            note(self.work, Op.DELETE, of, self._typed(of, at))
            self.raw.delete(of, at)
        self._seed(table)
        others = len(hanging.rows) - 1
        said = f"Moved to quarantine as {group}" + (f", with {others:,} rows that hang on it." if others else ".")
        useless = [name for name, row in names if row in self.useless]
        if useless:
            more = f" and {len(useless) - _NAMED:,} more" if len(useless) > _NAMED else ""
            said += f" Without it these cannot be read: {'; '.join(useless[:_NAMED])}{more}."
        return said

    def _replace(self, table: Table, place: Place, bad: Sequence[Bad], group: str, cause: str) -> bool:
        """Replace what is unreadable; False where nothing of the row says by what."""
        cells = self.raw.cells(table, place)
        row = typed(self.work, self.raw, table, place, bad)
        values: dict[str, Any] = {}
        for cell in bad:
            stand_in = STAND_INS[table.c[cell.column]](self.work, {**row, "quarantine": group})
            if stand_in is None:
                return False
            values.update(stand_in)
        self.work.select(table.update().where(self.raw.at(table, place)).values(values))
        note(self.work, Op.SET, table, row, values)
        contents = {"database": self.raw.word, "row": cells, "replaced": sorted(values)}
        self._keep(table, group, group, 0, cause, contents)
        return True

    def _keep(self, table: Table, id: str, group: str, position: int, cause: str, contents: Mapping[str, Any]) -> None:
        row = contents["row"]
        self.work.run(
            _KEEP,
            id=id,
            group_id=group,
            position=position,
            table_name=table.name,
            moved_at=self.work.now(),
            row_key=self._key(table, row),
            cause=cause,
            contents=dumps(contents),
        )

    def _loose(self, loose: Mapping[tuple[Table, Place], list[str]], parent: Table, cells: Cells) -> list[dict[str, Any]]:
        """Return the rows whose foreign key was emptied: their table, key and previous values, for a later restore."""
        found = []
        for (table, place), columns in loose.items():
            theirs = self.raw.cells(table, place)
            was = {name: theirs[name] for name in columns}
            found.append({"table": table.name, "key": {name: theirs[name] for name in key_of(table)}, "was": was})
        return found

    def _typed(self, table: Table, place: Place) -> dict[str, Any]:
        """Return the readable columns of a row for the event log. Empty if the log is off or does not cover the table."""
        return {} if self.work.journal is None or place_of(table) is None else self._readable(table, place)

    def _readable(self, table: Table, place: Place) -> dict[str, Any]:
        columns = columns_of(self.raw, table)
        values = self.raw.values(table, place, columns)
        return {} if values is None else typed(self.work, self.raw, table, place, bad_cells(columns, values))

    def _key(self, table: Table, cells: Cells) -> str:
        return key_text(table, [None if (cell := cells[name]) is None else next(iter(cell.values())) for name in key_of(table)])

    def _seed(self, table: Table) -> None:
        """Insert missing rows that a table must always have. Heads of the event log are counted from its events."""
        if table is event_heads:
            count_again(self.work)
        for row in table.info.get("seed", ()):
            same = [column == row[column.name] for column in table.primary_key]
            if self.work.select(select(table.c[table.columns[0].name]).where(*same)).first() is None:
                made = dict(row)
                for column in table.columns:
                    if column in STAND_INS:
                        made |= STAND_INS[column](self.work, {**made, "quarantine": ""}) or {}
                self.work.change(insert(table).values(made))


# Lists the rows that doctor moved to the quarantine, shows their contents and restores them.
#
# The contents of a row are a JSON object:
#
# database    the dialect that the cells come from
# row         by column, null or an object of one form and its value. Forms in a file: text, text_base64 (bytes that are not
#             UTF-8), integer, real or blob. Form on a server: the literal that its column type reads
# let_go      rows that stayed, whose reference to this row was set to NULL
# replaced    the columns that got a substitute value, if the row stayed in its table

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
        return rows_in_quarantine(work, after=after, limit=limit)


def rows_in_quarantine(work: UnitOfWork, *, after: str | None = None, limit: int = 100) -> list[Quarantined]:
    """What `quarantined` lists, in a snapshot that there is already."""
    first = "" if after is None else work.label("after", after)
    return [_value(row) for row in work.rows(_LIST, after=first, limit=check_count("limit", limit))]


def quarantined_row(store: Store, id: str) -> Quarantined:
    """Return one row in quarantine with its cells. Raises NotFound if there is none."""
    with looking(store, "quarantined_row()") as work:
        return row_in_quarantine(work, id)


def row_in_quarantine(work: UnitOfWork, id: str) -> Quarantined:
    """What `quarantined_row` returns, in a snapshot that there is already."""
    return _value(must_exist(work.row(_ONE, row_id=work.label("id", id)), "row in quarantine", id))


def restore_row(store: Store, id: str) -> list[Quarantined]:
    """Restore a row byte for byte, with the rows moved together with it, in one transaction. Return the restored rows.

    The row is as unreadable as before: restore it to repair it by hand. Raises NotFound if the id is unknown, Conflict if a key
    is in use again, if a referenced row is missing, or if the row comes from a database of another dialect.
    """
    with _unchecked(store) as work, Verb(work, "maintenance.restore_row", writes=True):
        group = must_exist(work.row(_ONE, row_id=work.label("id", id)), "row in quarantine", id)[1]
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
