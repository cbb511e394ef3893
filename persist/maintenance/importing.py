"""Imports a file that `export` wrote, in one transaction."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Column, Table, delete, select, update

from persist.blobs.content import HeldBodies
from persist.db.changes.journal import logged_tables, place_of
from persist.db.dialects.bulk import Columns, Row, converted, key_value
from persist.db.files import check_path, files
from persist.db.formats import form_of
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.schema.scope_columns import OWN, scope_of
from persist.db.statements.prepared import CompiledStatement, Statement, param
from persist.db.statements.schema_version import COPY, EVENTS, OWN_SCOPES, STRICT, UNFINISHED
from persist.db.values.arguments import OpenProgress
from persist.errors import Conflict, InvalidValue, NotPermitted
from persist.events.models import LOG_TABLES, event_heads
from persist.events.schemas import ALL
from persist.events.snapshots import write_snapshot
from persist.events.switching import take_positions
from persist.maintenance import lines as file_lines
from persist.maintenance import unknown_columns
from persist.maintenance.copying import FIXED, Checksum, first_with_rows, own_scopes, with_scopes
from persist.maintenance.erasure_marks import PREFIX as ERASURES
from persist.maintenance.exporting import SHARED
from persist.maintenance.table_keys import key_columns
from persist.maintenance.transactions import TABLES, Session, session
from persist.programs.models import STRICT_TABLES
from persist.store.store import Store

_META = table_of(Meta)
_BY_NAME = {table.name: table for table in TABLES}
_MAX_ROWS, _MAX_BYTES = 500, 2**20
_keys = {table: tuple(table.primary_key.columns) for table in TABLES}
_BY_KEY = {
    table: Statement(select(table).where(*(column == param(f"key_{column.name}") for column in _keys[table])))
    for table in TABLES
    if table in SHARED or table.info.get("seed") or table is _META
}

Line = tuple[Table, tuple[str, ...], Row]


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The rows written, by table. `session_id`: the session that the file exports, or None for a whole store.

    `log_off`: why the log of events that the export holds is not in this database, or is off here; None if nothing was left out.
    `carried`: what persist does not know and was written, too: values by table.column, rows by table. `left_unknown`: what of it
    was left: on request, or with rows of the log of events that this database does not take.
    """

    tables: dict[str, int]
    session_id: str | None = None
    log_off: str | None = None
    carried: Mapping[str, int] = field(default_factory=dict)
    left_unknown: Mapping[str, int] = field(default_factory=dict)


def import_(
    store: Store,
    path: Path | str | IO[bytes],
    *,
    scopes: Mapping[str, str] | None = None,
    leave_unknown: bool = False,
    progress: OpenProgress | None = None,
) -> ImportReport:
    """Write the rows of an export, in one transaction.

    `scopes`: the run_id, instance_id or workspace_id for rows that belonged to the exported file itself, if the export does not
    name it. InvalidValue names the line that is wrong, or says that the file is incomplete. Raises Conflict if a row exists
    already, unless it is equal and its table is shared between sessions. After an error, nothing is written. `progress`: called
    with the table at hand, the rows read, and how many the file has, which of a stream nobody knows. In an empty database the log
    of events goes on where it was on, and a file is strict where one was; without the rights to that the log is off.

    Columns and tables `x_…` of the export that persist does not know are made where the database lacks them, and filled, unless
    `leave_unknown` leaves them. InvalidValue names what the database cannot have of them, Conflict a table `x_…` that has rows,
    or another value in a row that was there already.
    """
    total = None if progress is None or not isinstance(path, Path | str) else _rows_in(path)
    with _opened(path) as stream:
        lines = file_lines.LineReader(stream)
        own = own_scopes(lines.header["scopes"], scopes)
        session_id = lines.header.get("session_id")
        with session(store, writable=True) as writing:
            work = _Import(writing, lines, own, whole=session_id is None, leave_unknown=leave_unknown)
            work.progress, work.total = progress, total
            work.run()
        store.runtime.scopes.update(work.taken)
        if work.fresh:
            store.runtime.keep_log(work.logs)
            store.runtime.strict = store.runtime.strict or work.strict
    return ImportReport(work.tables, session_id, work.log_off, work.unknown.counts, work.left_unknown)


class _Import:
    def __init__(
        self, target: Session, lines: file_lines.LineReader, own: dict[str, str], *, whole: bool, leave_unknown: bool
    ) -> None:
        self.target, self.lines, self.own = target, lines, own
        self.leave_unknown = leave_unknown
        self.left_unknown: dict[str, int] = {}
        self.tables: dict[str, int] = {}
        self.taken: dict[str, str] = {}
        self.highest: dict[Table, int] = {}
        self.whole = whole
        self.progress: OpenProgress | None = None
        self.done = 0
        self.total: int | None = None
        self.streams: set[str] = set()
        self.bodies = HeldBodies(TABLES)
        self.logs = self.strict = False
        """Whether the log of events was on in the exported database, and whether the file was a strict one."""
        self.log_off: str | None = None

    def run(self) -> None:
        bulk = self.target.bulk
        bulk.begin_loading(TABLES)
        self.fresh = self.whole and first_with_rows(self.target) is None
        """Whether a whole store is imported into an empty one: then the rows that always exist come from the file too."""
        if self.fresh:
            for table in TABLES:
                if table is not _META and table.info.get("seed"):
                    bulk.clear(table)
            if bulk.one_file:
                self.taken = {scope: id for scope, id in self.lines.header["scopes"].items() if scope in OWN_SCOPES}
        self.mine = {**self.target.scopes, **self.taken} if bulk.one_file else {}
        found = file_lines.unknown_declared(self.lines)
        taken = [one for one in found if one.known is None or self._takes(one.known)]
        self.unknown = unknown_columns.Carrying(taken, self.target, leave=self.leave_unknown, alone=self.fresh)
        self.left_unknown = {**self.unknown.left, **unknown_columns.counts_of(one for one in found if one not in taken)}
        self.there: dict[str, set[unknown_columns.Key]] = {one.table: set() for one in self.unknown.found}
        for (table, names), lines in groupby(self._lines(), key=lambda line: line[:2]):
            self._load(table, tuple(table.columns[name] for name in names), (row for _, _, row in lines))
        self._carry(found)
        for name, highest in self.lines.highest.items():
            if name in _BY_NAME:
                self.highest[_BY_NAME[name]] = max(highest, self.highest.get(_BY_NAME[name], 0))
        for table, highest in self.highest.items():
            bulk.go_on_after(table, highest)
        bulk.end_loading()
        if self.fresh:
            self._go_on()
        if self.target.store.logs_events:  # one snapshot event for each stream that got rows
            for stream in sorted(self.streams):
                write_snapshot(self.target.work, stream, logged_tables(TABLES))

    def _carry(self, found: Sequence[unknown_columns.Unknown]) -> None:
        def tables() -> Iterator[tuple[unknown_columns.Unknown, Iterator[list[Row]]]]:
            for one, batches in file_lines.unknown_rows(self.lines, found):
                rows = self._counted(one, batches)
                if one in self.unknown.found:
                    yield one, rows
                for _ in rows:  # what is left is read all the same: the file has to be whole
                    pass

        self.unknown.fill_from(lambda table: self.lines.counts.get(table, 0))
        self.unknown.make()
        self.unknown.there = self.there
        self.unknown.carry(tables())

    def _counted(self, one: unknown_columns.Unknown, batches: Iterator[list[Row]]) -> Iterator[list[Row]]:
        key = unknown_columns.unknown_key(one)
        for rows in batches:
            self._count(one.table, len(rows))
            yield self._scoped(key, rows) if key else rows

    def _count(self, table: str, rows: int) -> None:
        self.done += rows
        if self.progress is not None:
            self.progress(table, self.done, self.total)

    def _takes(self, table: Table) -> bool:
        """Whether every row of the table is taken: the event log belongs to the exported database."""
        return table is not _META and (place_of(table) is not None or bool(table.info.get("unlogged")) or self.fresh)

    def _go_on(self) -> None:
        """Let the imported log of events go on, and its consumers with it, from the positions in this database on."""
        work = self.target.work
        if self.logs:
            try:
                work.whole_tables.check_guard(logged_tables(TABLES), on=True)
            except NotPermitted as error:
                self.logs, self.log_off = False, f"the log of events is off: {error}"
                work.change(delete(_META).where(_META.c.key == EVENTS))
                work.change(update(event_heads).where(event_heads.c.stream_id == ALL).values(logging=False))
            else:
                work.whole_tables.guard_log(logged_tables(TABLES), LOG_TABLES)
        take_positions(work)
        if self.strict:
            work.whole_tables.guard_strictly(STRICT_TABLES)

    def _note_streams(self, table: Table, columns: Columns, rows: list[Row]) -> None:
        place = place_of(table)
        if place is None or place.through is not None or not self.target.store.logs_events or not rows:
            return
        index = next((i for i, column in enumerate(columns) if column.name == place.column), None)
        for value in {None} if index is None else {row[index] for row in rows}:
            if value is None:
                self.streams.add(place.shared)
            else:
                self.streams.add(place.name(value or self.own.get(place.column or "", "")))

    def _lines(self) -> Iterator[Line]:
        """Yield every row of the file, with its values validated."""
        while (found := self.lines.row()) is not None:
            name, row = found
            table = _BY_NAME.get(name)
            if table is None:
                raise self.lines.wrong(f"there is no table {name!r}.")
            unknown = [key for key in row if key not in table.columns]
            if unknown:
                raise self.lines.wrong(f"{name} has no column {unknown[0]!r}.")
            for column in table.columns:
                if row.get(column.name) is None and not _may_be_null(column, given=column.name in row):
                    raise self.lines.wrong(f"{name}.{column.name}: expected a value, found null or nothing.")
            columns = [column for column in table.columns if column.name in row]
            names, checked = tuple(column.name for column in columns), self._checked(columns, row)
            self._refuse(None if self.fresh else self.bodies.wrong_with(table, dict(zip(names, checked, strict=True))))
            yield table, names, checked
        self._refuse(self.bodies.wrong_at_end())

    def _refuse(self, wrong: str | None) -> None:
        if wrong is not None:
            raise self.lines.wrong(wrong)

    def _checked(self, columns: Columns, row: dict[str, Any]) -> Row:
        try:
            values = converted([tuple([row[column.name] for column in columns])], columns, [file_lines.value_of] * len(columns))
            checked = converted(values, columns, [form_of(column).checked for column in columns])
            converted(checked, columns, [form_of(column).logical for column in columns])  # reads JSON too
            return checked[0]
        except InvalidValue as error:
            raise self.lines.wrong(str(error)) from None

    def _load(self, table: Table, columns: Columns, rows: Iterator[Row]) -> None:
        number = next((i for i, column in enumerate(columns) if column.identity is not None), None)

        def batches() -> Iterator[list[Row]]:
            for batch in self._batched(rows):
                self._count(str(table.name), len(batch))
                batch = self._mine(table, columns, batch)
                if number is not None and batch:
                    self.highest[table] = max(self.highest.get(table, 0), *(row[number] for row in batch))
                if table in _BY_KEY and not self.fresh:
                    batch = [row for row in batch if not self._is_there(table, columns, row)]
                self.tables[str(table.name)] = self.tables.get(table.name, 0) + len(batch)
                yield batch

        if table in _BY_KEY and not self.fresh:  # not every dialect can query a table during its bulk load
            for batch in batches():
                self.target.bulk.load(table, columns, [batch])
        else:
            self.target.bulk.load(table, columns, batches())

    def _batched(self, rows: Iterator[Row]) -> Iterator[list[Row]]:
        for first in rows:
            batch, start = [first], self.lines.bytes
            for row in rows:
                batch.append(row)
                if len(batch) >= _MAX_ROWS or self.lines.bytes - start > _MAX_BYTES:
                    break
            yield batch

    def _mine(self, table: Table, columns: Columns, rows: list[Row]) -> list[Row]:
        """Return the rows to write, with scope columns as this database stores them."""
        if table is _META:
            skipped = {*FIXED}
            keys = {row[0] for row in rows}
            if self.fresh:
                self.logs = self.logs or EVENTS in keys
                self.strict = self.strict or (STRICT in keys and self.target.bulk.one_file)
            else:
                skipped |= {EVENTS}
                if EVENTS in keys:
                    self.log_off = "the log of events was not imported, nor its consumers: the database has rows of its own"
            if not (self.fresh and self.target.bulk.one_file):
                skipped |= {*OWN_SCOPES, STRICT}
            skipped |= {COPY, UNFINISHED}  # what was under way in the exported database is not under way here
            return [row for row in rows if row[0] not in skipped and not row[0].startswith(ERASURES)]
        if not self._takes(table):
            return []
        self._note_streams(table, columns, rows)
        return self._scoped(columns, rows)

    def _scoped(self, columns: Columns, rows: list[Row]) -> list[Row]:
        if not self.target.bulk.one_file:
            return with_scopes(columns, rows, self.own)

        def here(scope: str, stored: str) -> str:
            real = stored or self.own.get(scope, OWN)
            return OWN if real == self.mine.get(scope) else real

        for index, column in enumerate(columns):
            if (scope := scope_of(column)) is not None:
                rows = [(*row[:index], here(scope, row[index]), *row[index + 1 :]) for row in rows]
        return rows

    def _is_there(self, table: Table, columns: Columns, row: Row) -> bool:
        """Whether an equal row exists. Raises Conflict if a different row has the key."""
        values = {f"key_{column.name}": row[columns.index(column)] for column in _keys[table]}
        compiled: CompiledStatement = self.target.store.runtime.prepared[_BY_KEY[table]]
        every: list[Column[Any]] = list(table.columns)
        there = list(chain.from_iterable(self.target.bulk.batches(compiled, every, values)))
        if there and table.name in self.there:
            found = {column.name: row[columns.index(column)] for column in columns}
            self.there[str(table.name)].add(tuple(key_value(c, found.get(c.name)) for c in key_columns(table)))
        if not there or table.info.get("by_digest"):
            return bool(there)
        places = [every.index(column) for column in columns]
        ours, theirs = Checksum(columns, {}), Checksum(columns, {})
        ours.add([tuple(there[0][place] for place in places)])
        theirs.add([row])
        if str(ours) != str(theirs):
            key = ", ".join(repr(value) for value in values.values())
            raise Conflict(f"{table.name}: there is another row {key} already. Nothing was written.", constraint=table.name)
        return True


def _may_be_null(column: Column[Any], *, given: bool) -> bool:
    return bool(column.nullable) or (not given and (column.server_default is not None or column.identity is not None))


def _rows_in(path: Path | str) -> int:
    """The lines of an export without the first and the last one, which are no rows."""
    lines = 0
    with _opened(path) as stream:
        while block := stream.read(_MAX_BYTES):
            lines += block.count(b"\n")
    return max(0, lines - 2)


@contextmanager
def _opened(path: Path | str | IO[bytes]) -> Iterator[IO[bytes]]:
    if not isinstance(path, Path | str):
        yield path
        return
    given = check_path("path", path)
    with files(given), open(given, "rb") as stream:
        yield stream
