"""Move rows with unreadable cells to the quarantine table, together with the rows that depend on them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from typing import Any

from sqlalchemy import Table, exists, insert, or_, select, type_coerce
from sqlalchemy.types import NullType

from persist.chat.models import messages as chat_messages
from persist.chat.models import sessions as chat_sessions
from persist.chat.storage.usage import recompute
from persist.db.changes.event_streams import key_of, place_of
from persist.db.changes.journal import Change, Op
from persist.db.dialects.raw_rows import Cell, Cells, Place, RawRows
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import QuarantineRow
from persist.db.statements.prepared import Statement
from persist.db.transactions.stand_ins import StandIns
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.domains import upkeeps
from persist.errors import InvalidValue, StoreCorrupt
from persist.events.models import event_heads
from persist.events.upkeep import count_again
from persist.maintenance.hanging import hanging_on, parents_of
from persist.maintenance.unreadable import Bad, bad_cells, columns_of, key_text

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
            if bad:
                said.append(aside.row(table, place, bad))
    settle(work, aside.moved)
    return " ".join(said) or None


def set_orphans_aside(work: UnitOfWork, *, table: Table) -> str | None:
    """Move those rows of a table that would have gone with a missing row, had the database checked its foreign keys.

    Return what was done, or None if there is no such row. Where a row of the parent's table lacks its key, all stay.
    """
    with work.whole_tables.raw_rows() as raw:
        aside = _Aside(work, raw)
        names = key_of(table)
        for key, parent in parents_of(raw, table):
            if key.ondelete != "CASCADE":
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
    """Journal a change for the event log, if the log is on and the row's key is readable.

    Rows of delta tables are skipped: their text belongs to the events of another table.
    """
    place, key = place_of(table), key_of(table)
    if work.journal is None or place is None or "deltas_of" in table.info or not {*key} <= row.keys():
        return
    if op is not Op.PUT:
        names = dict.fromkeys([*key, *(name for name in (place.column, place.through) if name is not None)])
        row = {**{name: row.get(name) for name in names}, **(values or {})}
    work.journal.add([Change(table, op, row)])


@dataclass(slots=True)
class _Aside:
    """Moves rows to the quarantine within one transaction. `moved` lists the rows that were moved."""

    work: UnitOfWork
    raw: RawRows
    moved: list[tuple[Table, Cells]]
    useless: set[tuple[Table, Place]]
    """Rows that go along though no foreign key says so."""

    read: dict[Any, Any]

    def __init__(self, work: UnitOfWork, raw: RawRows) -> None:
        self.work, self.raw, self.moved, self.useless, self.read = work, raw, [], set(), {}

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
            self._replace(table, place, bad, group, cause)
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

    def _replace(self, table: Table, place: Place, bad: Sequence[Bad], group: str, cause: str) -> None:
        cells = self.raw.cells(table, place)
        row = typed(self.work, self.raw, table, place, bad)
        values: dict[str, Any] = {}
        for cell in bad:
            values |= STAND_INS[table.c[cell.column]](self.work, {**row, "quarantine": group})
        self.work.select(table.update().where(self.raw.at(table, place)).values(values))
        note(self.work, Op.SET, table, row, values)
        contents = {"database": self.raw.word, "row": cells, "replaced": sorted(values)}
        self._keep(table, group, group, 0, cause, contents)

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
                        made |= STAND_INS[column](self.work, {**made, "quarantine": ""})
                self.work.change(insert(table).values(made))
