"""Adopts a file of another program: checks whether that is needed, makes a backup, and changes it in one transaction."""

import logging
import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from json import loads
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Table, and_, insert, select, type_coerce, update
from sqlalchemy.types import NullType

from persist.db.dialects.backends import dialect_for, file_dialect, row_guard_ddl
from persist.db.dialects.interface import Dialect
from persist.db.dialects.sqlite.foreign_files import ForeignFile, Orphans
from persist.db.dialects.sqlite.parsed_ddl import catalog_of_statements
from persist.db.operations.upkeep import Notice, Settled, Takeover, file_to_adopt
from persist.db.schema.base import VERSION_TABLE, table_of
from persist.db.schema.column_types import Json
from persist.db.schema.instants import Instant, IsoMs, SqlSeconds
from persist.db.schema.meta_table import Meta
from persist.db.statements.schema_version import ADOPTED, read_version, version_table
from persist.db.unreadable.conditions import instant_reader, json_reader
from persist.db.values.arguments import Progress
from persist.db.values.clock import Clock, system_clock
from persist.db.values.json import INT_MAX, INT_MIN
from persist.errors import Conflict, InvalidValue, UnmanagedDatabase
from persist.schema.adopt import plan
from persist.schema.metadata import HEAD, domain_of, metadata
from persist.schema.opening import ddl, prepare, table_ddl
from persist.settings import Settings


@dataclass(frozen=True, slots=True)
class AdoptReport:
    """The changes to the file at `path`, which is at `revision` now. All fields are empty if it was persist's already.

    Columns are "table.column", indexes "table.index". `rebuilt` are rebuilt tables, `settled` rows that a rule changed, `moved`
    counts places of progressions that became rows, `notices` are problems that were left in the file and need attention.
    """

    path: Path
    revision: str
    backup_path: Path | None = None
    added_tables: tuple[str, ...] = ()
    added_columns: tuple[str, ...] = ()
    added_indexes: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()
    settled: tuple[Settled, ...] = ()
    moved: int = 0
    notices: tuple[Notice, ...] = ()
    run_id: str | None = None
    adopted: bool = False
    """Whether there was anything to do: False for a file that persist made or adopted before."""


UNREADABLE_JSON = "text that is no JSON"
DIGITS_LOST = "integers beyond 64 bits, which are read as floats"
DIGITS_LOST_BEFORE = "numbers so large that the file has kept them as floats"
UNREADABLE_INSTANT = "values that are no instants"
OTHER_FORMAT = "instants in another format than the rest, which do not sort among them"

_AS_TEXT = (IsoMs, SqlSeconds)
_MANY_DIGITS = re.compile(r"\d{19}")
_LARGE = 2.0**63

Reader = Callable[[Any], str | None]


def look_through(takeover: Takeover, dialect: Dialect, tables: Sequence[Table]) -> None:
    """Add a notice to the report for each kind of problem in each column."""
    for table in tables:
        readers = {column: _reader(column.type, dialect) for column in table.columns}
        columns = [(column, reader) for column, reader in readers.items() if reader is not None]
        if not columns:
            continue
        wrong: Counter[tuple[str, str]] = Counter()
        raw = select(*[type_coerce(column, NullType()) for column, _ in columns])
        for row in takeover.connection.execute(raw, execution_options={"yield_per": 500}):
            for (column, reader), value in zip(columns, row, strict=True):
                said = None if value is None else reader(value)
                if said is not None:
                    wrong[column.name, said] += 1
        for (name, message), count in sorted(wrong.items()):
            takeover.notice(f"{table.name}.{name}", message, count)


def _reader(type: Any, dialect: Dialect) -> Reader | None:
    if isinstance(type, Json):
        return _json
    if isinstance(type, Instant):
        words, readable = dialect.connections.writer.dialect, instant_reader(type)
        stored = type.storing(words) if isinstance(type, _AS_TEXT) else None
        read = type.reading(words)

        def instant(value: Any) -> str | None:
            if readable(value) is not None:
                return UNREADABLE_INSTANT
            return OTHER_FORMAT if stored is not None and stored(read(value)) != value else None

        return instant
    return None


def _json(value: Any) -> str | None:
    if isinstance(value, int):
        return None
    if isinstance(value, float):
        return DIGITS_LOST_BEFORE if math.isinf(value) or abs(value) >= _LARGE else None
    try:
        if json_reader(value) is None:
            return DIGITS_LOST if _MANY_DIGITS.search(value) and _beyond(value) else None
    except (TypeError, ValueError, RecursionError):  # bytes, or text that only the fast decoder accepts
        pass
    return UNREADABLE_JSON


def _beyond(text: str) -> bool:
    """Whether the text contains an integer that the fast decoder would convert to a float."""
    found = []

    def whole(digits: str) -> int:
        if len(digits) > 20 or not INT_MIN <= int(digits) <= INT_MAX:
            found.append(digits)
        return 0

    loads(text, parse_int=whole)
    return bool(found)


_meta = table_of(Meta)
_VERSION = "schema_version"
STEPS = (
    "checking the file",
    "copying the file",
    "adding tables and columns",
    "settling rows",
    "adding indexes",
    "reading rows",
    "checking the result",
)
"""What is done to an adopted file, for those who want to know how far it is."""


class Changes:
    """The changes to a file. UnmanagedDatabase before any change, if its tables are not persist's."""

    def __init__(self, dialect: Dialect, file: ForeignFile) -> None:
        self._dialect = dialect
        self._file = file
        self._expected = catalog_of_statements(ddl(dialect))
        self._found = file.catalog()
        self._models = [version_table, *metadata.sorted_tables]
        self._plan = plan.plan([model for model in self._models if model is not version_table], self._expected, self._found)
        self.rebuilds = bool(self._plan.rebuilds)
        brought = {name: table.columns for name, table in self._found.tables.items()}
        self._takeover = Takeover(file, brought)

    def make(self, tell: Callable[[int], object]) -> AdoptReport:
        """Make all changes; the caller commits, or rolls back after an error. `tell`: called with the number of each step."""
        tell(2)
        file, takeover = self._file, self._takeover
        orphans = file.orphans()
        for model, unique in self._plan.rebuilds:
            file.rebuild_without_unique(model.name, unique)
        tables = list(self._add_tables())
        columns = list(self._add_columns())
        tell(3)
        for rules in plan.ALL.values():
            for step in rules.settle:
                step(takeover)
        self._seed()
        tell(4)
        indexes = list(self._add_indexes())
        for rules in plan.ALL.values():
            for step in rules.fill:
                step(takeover)
        self._add_row_guards()
        tell(5)
        look_through(takeover, self._dialect, [model for model in metadata.sorted_tables if takeover.brought(model)])
        for model in metadata.sorted_tables:
            if (found := self._found.tables.get(model.name)) is not None:
                plan.notice_empty(takeover, model, found)
        self._notice_unknown()
        tell(6)
        self._check_references(orphans)
        self._stamp()
        file.check(full=False)
        return AdoptReport(
            file.path,
            HEAD,
            added_tables=tuple(tables),
            added_columns=tuple(columns),
            added_indexes=tuple(indexes),
            rebuilt=tuple(model.name for model, _ in self._plan.rebuilds),
            settled=tuple(takeover.settled),
            moved=takeover.moved,
            notices=tuple(takeover.notices),
            run_id=takeover.facts.get("run_id"),
            adopted=True,
        )

    def _add_tables(self) -> Iterator[str]:
        missing = list(self._plan.missing)
        if VERSION_TABLE not in self._found.tables:
            missing.insert(0, version_table)
        for model in missing:
            self._file.run(table_ddl(self._dialect, model)[0])
            yield model.name

    def _add_indexes(self) -> Iterator[str]:
        """Create missing indexes; only those of tables that existed before are reported."""
        found = self._file.catalog()
        taken = set(found.taken)
        for model in metadata.sorted_tables:
            for index in plan.missing_indexes(self._expected.tables[model.name], found.tables[model.name]):
                # the index's own name, with a number appended if the file uses that name already
                names = (index.name if number == 1 else f"{index.name}_{number}" for number in range(1, 1000))
                name = next(name for name in names if name.lower() not in taken)
                taken.add(name.lower())
                if index.unique and self._file.repeated(model.name, index):
                    what = ", ".join(index.terms)
                    raise UnmanagedDatabase([model.name], reason=f"{model.name} has several rows with the same {what}")
                self._file.add_index(name, model.name, index)
                if self._takeover.brought(model):
                    yield f"{model.name}.{name}"

    def _add_row_guards(self) -> None:
        """Create the row guards, after every change of rows: a row that breaks a rule stays as it is."""
        for statement in row_guard_ddl(metadata.sorted_tables, self._dialect.name, self._dialect.schema):
            self._file.run(statement)

    def _add_columns(self) -> Iterator[str]:
        added: dict[str, list[str]] = {}
        for model, column in self._plan.columns:
            added.setdefault(model.name, []).append(column.name)
        for model, column in self._plan.columns:
            self._file.add_column(model.name, column, plan.checks_on(model, column, added[model.name]))
            yield f"{model.name}.{column.name}"
        for model in metadata.sorted_tables:
            self._fill_columns(model, added.get(model.name, ()))

    def _fill_columns(self, model: Table, added: Sequence[str]) -> None:
        for column, value in plan.rules_of(model).values.items():
            if column.table is model and column.name in added:
                self._takeover.run(update(model).values({column: value}))
        found = self._found.tables.get(model.name)
        for column in plan.may_be_empty(model, found) if found is not None else ():
            if (known := plan.value_for(column)) is not None:
                empty = type_coerce(column, NullType()).is_(None)
                count = self._takeover.run(update(model).where(empty, known.isnot(None)).values({column: known}))
                what = "an instant that is known" if isinstance(column.type, Instant) else "what a new row has"
                self._takeover.settle(model, f"{column.name} held nothing, and got {what}", count)

    def _notice_unknown(self) -> None:
        models = {model.name: model for model in self._models}
        for name, table in self._found.tables.items():
            if name not in models:
                self._takeover.notice(table.name, "rows of a table that persist does not know", self._file.count(table.name))
                continue
            for column in table.columns.values():
                if column.name.lower() not in models[name].columns:
                    count = self._file.count(table.name, column.name)
                    message = "values of a column that persist does not know"
                    self._takeover.notice(f"{table.name}.{column.name}", message, count)

    def _seed(self) -> None:
        for model in metadata.sorted_tables:
            for row in model.info.get("seed", ()) if model is not _meta else ():
                same = and_(*[column == row[column.name] for column in model.primary_key])
                if not self._takeover.rows(select(1).select_from(model).where(same)):
                    self._takeover.run(insert(model).values(row))

    def _check_references(self, before: Orphans) -> None:
        after = self._file.orphans()
        lost = {pair: count for pair, count in after.items() if count > before.get(pair, 0) or (count < 0 and pair not in before)}
        if lost:
            (table, parent), count = next(iter(lost.items()))
            raise Conflict(f"{count} rows of {table} would have no row of {parent} any more.", constraint=f"{table} -> {parent}")
        for (table, parent), count in after.items():
            if count < 0:
                self._takeover.notice(table, "its foreign keys name no key of the table they refer to, and cannot be checked")
            else:
                self._takeover.notice(table, f"rows refer to rows of {parent} that are not there", count)

    def _stamp(self) -> None:
        """Write persist's version into the file. The other program's schema_version is kept under another key."""
        facts: dict[str, Any] = dict(self._takeover.rows(select(_meta.c.key, _meta.c.value)))
        theirs = facts.get(_VERSION)
        new = {**self._takeover.facts, _VERSION: HEAD}
        if theirs is not None and theirs != HEAD:
            new[ADOPTED] = theirs
            self._takeover.settle(_meta, f"the file's own {_VERSION}, {theirs!r}, is now {ADOPTED}", 1)
        for key, value in new.items():
            if key not in facts:
                self._takeover.run(insert(_meta).values(key=key, value=value))
            elif key == _VERSION:
                self._takeover.run(update(_meta).where(_meta.c.key == key).values(value=value))
        self._takeover.run(insert(version_table).values(version_num=HEAD))


log = logging.getLogger("persist")

R = TypeVar("R")
_OURS = {table.name for table in metadata.sorted_tables if domain_of(table) != "db"}


def adopt(
    url: str | Path,
    *,
    backup: bool = True,
    dry_run: bool = False,
    settings: Settings | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> AdoptReport:
    """Make a file that another program wrote one that a store opens: what is missing is added, nothing unknown is touched.

    A copy is put beside the file first, unless `backup` is False. `dry_run` works on a copy in a temporary folder and only
    reports. A file of persist is brought up to date, as opening it would. Any error leaves the file as it was.

    Raises NotFound if there is no such file, UnmanagedDatabase if tables with persist's names have other keys or columns,
    InvalidValue if persist knows none of its tables, UnsupportedEngine if it is not a file, and as opening does StoreCorrupt,
    SchemaTooNew, SchemaUnknown or StoreBusy. `progress`: called with what is being done, the steps done, and how many there are.
    """
    settings = settings or Settings()
    dialect = dialect_for(url, settings)
    try:
        path = file_to_adopt(dialect)
        if dry_run:
            return _on_a_copy(dialect, path, settings, progress)
        return _known(_adopt(dialect, backup=backup, clock=clock or system_clock, progress=progress), path)
    finally:
        dialect.connections.dispose()


def adopt_if_foreign(dialect: Dialect, clock: Clock) -> None:
    """Adopt a file that is about to be opened; a database without tables of persist's names stays unchanged."""
    if dialect.read_only:
        raise InvalidValue("adopt", "a read-only store changes nothing.")
    if dialect.one_file and dialect.path is not None and dialect.path.exists():
        try:
            _adopt(dialect, backup=True, clock=clock)
        except BaseException:
            dialect.connections.dispose()
            raise


def _on_a_copy(dialect: Dialect, path: Path, settings: Settings, progress: Progress | None) -> AdoptReport:
    with tempfile.TemporaryDirectory(prefix="persist-") as folder:
        copy = Path(folder) / path.name
        _with_file(dialect, lambda file: file.copy_to(copy))
        copied = file_dialect(copy, settings)
        try:
            report = _adopt(copied, backup=False, clock=system_clock, progress=progress)
        finally:
            copied.connections.dispose()
    return replace(_known(report, path), path=path)


def _known(report: AdoptReport | None, path: Path) -> AdoptReport:
    if report is None:
        raise InvalidValue("url", f"none of the tables in {path} is one that persist knows; nothing was changed.")
    return report


def _adopt(dialect: Dialect, *, backup: bool, clock: Clock, progress: Progress | None = None) -> AdoptReport | None:
    path = file_to_adopt(dialect)

    def tell(done: int) -> None:
        if progress is not None:
            progress(STEPS[done], done, len(STEPS))

    def work(file: ForeignFile) -> AdoptReport | None:
        for enforcing in (True, False):
            file.begin(enforcing=enforcing)
            if VERSION_TABLE in dialect.tables.names(file.connection) and read_version(file.connection) is not None:
                file.rollback()
                return AdoptReport(path, HEAD)
            if not _OURS & file.catalog().tables.keys():
                file.rollback()
                return None
            tell(0)
            file.check(full=True)
            changes = Changes(dialect, file)
            if enforcing and changes.rebuilds:
                file.rollback()  # PRAGMA foreign_keys has no effect inside a transaction
                continue
            tell(1)
            kept = file.back_up(clock()) if backup else None
            report = changes.make(tell)
            file.commit()
            return replace(report, backup_path=kept)
        raise AssertionError("unreachable: the second pass returns or raises")

    report = _with_file(dialect, work)
    if report is not None:
        prepare(dialect, migrate=None)
        if report.adopted:
            log.info("%s was adopted; what it was like before is in %s", path, report.backup_path)
    return report


def _with_file(dialect: Dialect, work: Callable[[ForeignFile], R]) -> R:
    with dialect.errors.translated(), dialect.connections.writer.connect() as connection:
        file = ForeignFile(dialect, connection)
        try:
            return work(file)
        except BaseException:
            file.rollback()
            raise
