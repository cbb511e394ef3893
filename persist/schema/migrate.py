"""Upgrades a database with Alembic, using the revisions in the repository or in the wheel."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations, ops
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine

from persist.db.connections import check_reachable, width
from persist.db.dialects.backends import dialect_for, lent_dialect, operations_of
from persist.db.dialects.interface import Dialect
from persist.db.dialects.upgrade_steps import Step, StepKind, afterwards, locks_of
from persist.db.schema.base import SCHEMA_TOKEN
from persist.errors import MigrationFailed, SchemaOutdated, SchemaTooNew, SchemaUnknown, UnmanagedDatabase
from persist.schema.metadata import HEAD
from persist.schema.revision import found_revision, verify
from persist.settings import Settings

_ALTERED = re.compile(r"\s*ALTER\s+TABLE\s+(\w+)", re.IGNORECASE)
_WRITTEN = re.compile(r"\s*(?:UPDATE|INSERT\s+INTO|DELETE\s+FROM)\s+(\w+)", re.IGNORECASE)


def steps_between(scripts: ScriptDirectory, found: str | None, to: str | None, dialect: str) -> list[Step]:
    """What the revisions after `found` (None: all) do, up to and with `to`, on a kind of database, in their order."""
    revisions = list(scripts.walk_revisions())[::-1]
    order = [script.revision for script in revisions]
    begin = order.index(found) + 1 if found in order else 0
    end = order.index(to) + 1 if to in order else 0
    recorded = [(script.revision, operation) for script in revisions[begin:end] for operation in _operations(script, dialect)]
    created = {operation.table_name for _, operation in recorded if isinstance(operation, ops.CreateTableOp)}
    return [step for revision, operation in recorded for step in _steps(revision, operation, created)]


def _operations(script: Any, dialect: str) -> list[Any]:
    seen: list[Any] = []
    with Operations.context(MigrationContext.configure(dialect_name=dialect, opts={"as_sql": True})) as recording:
        recording.invoke = seen.append  # type: ignore[method-assign,assignment]  # every operation passes through it
        with suppress(Exception):  # raised again, and reported, where the revision is run
            script.module.upgrade()
    return seen


def _steps(revision: str, operation: Any, created: set[str]) -> Iterator[Step]:
    def step(kind: StepKind, table: str | None, name: str | None = None) -> Step:
        return Step(revision, kind, table, name, table is not None and table not in created, operation)

    match operation:
        case ops.CreateTableOp():
            yield step(StepKind.CREATE_TABLE, operation.table_name)
        case ops.AddColumnOp():
            yield step(StepKind.ADD_COLUMN, operation.table_name, operation.column.name)
        case ops.CreateIndexOp():
            yield step(StepKind.CREATE_INDEX, operation.table_name, str(operation.index_name))
        case ops.DropIndexOp():
            yield step(StepKind.DROP_INDEX, operation.table_name, str(operation.index_name))
        case ops.CreateCheckConstraintOp():
            yield step(StepKind.ADD_CONSTRAINT, operation.table_name, str(operation.constraint_name))
            yield step(StepKind.VALIDATE, operation.table_name, str(operation.constraint_name))
        case ops.CreateForeignKeyOp():
            yield step(StepKind.ADD_CONSTRAINT, operation.source_table, str(operation.constraint_name))
            yield step(StepKind.VALIDATE, operation.source_table, str(operation.constraint_name))
        case ops.ExecuteSQLOp():
            text = str(operation.sqltext)
            if altered := _ALTERED.match(text):
                yield step(StepKind.CHANGE_SETTING, altered[1])
            else:
                written = _WRITTEN.match(text)
                yield step(StepKind.STATEMENT, written and written[1])
        case _:
            yield step(StepKind.STATEMENT, getattr(operation, "table_name", None))


R = TypeVar("R")
Given = str | PathLike[str] | Engine | Connection

_CONNECTIONS = 2
"""Connections that an upgrade needs at once: one for the lock against other upgrades, one for the work."""
_SHIPPED = Path(__file__).resolve().parents[1] / "_migrations"


def script_dir() -> str:
    """The folder of this installation's revisions: inside the wheel, or at the top of the repository."""
    return str(_SHIPPED if _SHIPPED.is_dir() else _SHIPPED.parents[1] / "alembic")


def config() -> Config:
    """An Alembic configuration for this installation."""
    made = Config()
    made.set_main_option("script_location", script_dir().replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    return made


def upgrade(database: Given, *, schema: str | None = None) -> None:
    """Create or upgrade the tables of a database: what `persist upgrade` and `alembic upgrade head` do.

    `database`: its URL, or the Path of a SQLite file; your engine, which is not disposed; or your connection, whose transaction
    is used and which you commit. For a connection of an AsyncEngine: `await connection.run_sync(persist.upgrade)`.

    A host's own tables stay unchanged. SchemaTooNew: a newer persist upgraded the database. SchemaUnknown: the stored version is
    invalid. UnmanagedDatabase: tables have persist's names, but there is no version. MigrationFailed: nothing was changed.
    """
    with _dialect(database, schema) as dialect:
        upgrade_with(dialect, database if isinstance(database, Connection) else None)


def current(database: Given, *, schema: str | None = None) -> str | None:
    """The revision a database is at; None where persist was never here. `database` as for `upgrade`."""
    return ask_database(database, schema, found_revision)


def check(database: Given, *, schema: str | None = None) -> None:
    """Raises SchemaOutdated, SchemaTooNew or UnmanagedDatabase, unless at this code's revision. `database`: see `upgrade`."""
    ask_database(database, schema, verify)


@contextmanager
def _dialect(database: Given, schema: str | None, *, read_only: bool = False) -> Iterator[Dialect]:
    if not isinstance(database, str | URL | PathLike):
        yield lent_dialect(database, Settings(), schema=schema)
        return
    dialect = dialect_for(database, Settings(), schema=schema, read_only=read_only)
    try:
        yield dialect
    finally:
        dialect.connections.dispose()


def ask_database(database: Given, schema: str | None, question: Callable[[Connection, Dialect], R]) -> R:
    """The answer to a question about a database, which is not changed."""
    with _dialect(database, schema, read_only=True) as dialect, dialect.errors.translated():
        if isinstance(database, Connection):
            with _as_ours(database, dialect):
                return question(database, dialect)
        with dialect.connections.reader.connect() as connection:
            return question(connection, dialect)


@contextmanager
def _as_ours(connection: Connection, dialect: Dialect) -> Iterator[None]:
    check_reachable(connection)
    theirs, began = connection.get_execution_options().get("schema_translate_map"), connection.in_transaction()
    connection.execution_options(schema_translate_map={SCHEMA_TOKEN: dialect.schema})
    try:
        yield
    finally:
        connection.execution_options(schema_translate_map=theirs)
        if not began and connection.in_transaction():
            connection.rollback()


@contextmanager
def _transaction(dialect: Dialect) -> Iterator[Connection]:
    with dialect.connections.writer.connect() as connection:
        dialect.transactions.begin(connection, write=True)
        yield connection
        connection.commit()


@contextmanager
def _savepoint(connection: Connection, dialect: Dialect) -> Iterator[Connection]:
    """A savepoint in the caller's transaction, which stays usable after a failure."""
    check_reachable(connection)
    dialect.transactions.join(connection)
    with _as_ours(connection, dialect), connection.begin_nested():
        yield connection


_one_at_a_time = threading.Lock()
"""Held while Alembic runs: what its revisions call is global to the process."""


class _ThereAlreadyError(Exception):
    """There are tables, and only new ones were to be made."""


def upgrade_with(
    dialect: Dialect,
    within: Connection | None = None,
    *,
    only_new: bool = False,
    after: Callable[[Connection], None] | None = None,
) -> bool:
    """Upgrade under the lock that env.py takes, or `within` a transaction. `only_new`: where no tables are, else False."""
    settings = config()
    found: str | None = None
    applied: list[str] = []
    checks_passed = False

    def before(connection: Connection) -> None:
        nonlocal found, checks_passed
        found = found_revision(connection, dialect)
        if only_new and found is not None:
            raise _ThereAlreadyError
        strangers = dialect.tables.names(connection) if only_new else ()
        if strangers:  # dropping the tenant would take them along
            raise UnmanagedDatabase(sorted(strangers), reason=f"{dialect.schema} has tables already, which are not a tenant's")
        with suppress(SchemaOutdated):
            verify(connection, dialect)
        checks_passed = True

    settings.attributes.update(schema=dialect.schema, before=before, applied=applied)
    try:
        in_phases = within is None and not only_new and not dialect.one_file
        if in_phases and width(dialect.connections.writer.pool) >= _CONNECTIONS:
            settings.attributes.update(engine=dialect.connections.writer)
            with _one_at_a_time:
                command.upgrade(settings, "head")
            return True
        with _transaction(dialect) if within is None else _savepoint(within, dialect) as connection:
            settings.attributes.update(connection=connection, after=after)
            with _one_at_a_time:
                command.upgrade(settings, "head")
        return True
    except _ThereAlreadyError:
        return False
    except (SchemaTooNew, SchemaUnknown, UnmanagedDatabase):
        raise
    except Exception as error:
        ours = dialect.errors.classify(error) or error
        if not checks_passed:
            raise ours from error
        where = str(dialect.path or dialect.schema)
        step = settings.attributes.get("step")
        at = _failing(settings, found, applied) if step is None else step.revision
        raise MigrationFailed(where, found, HEAD, at, str(ours), None if step is None else str(step)) from error


def _failing(settings: Config, found: str | None, applied: list[str]) -> str | None:
    order = [script.revision for script in ScriptDirectory.from_config(settings).walk_revisions()][::-1]
    last = applied[-1] if applied else found
    rest = order[order.index(last) + 1 :] if last in order else order
    return rest[0] if rest else None


def ini_text() -> str:
    """An alembic.ini for hosts that run `alembic upgrade head` themselves.

    It names the revisions of whichever persist is installed; in a clone, where they are beside the package, their folder.
    `alembic revision` runs env.py first, which refuses it: a revision of the host's would be written into the package.
    """
    location = "persist:_migrations" if _SHIPPED.is_dir() else script_dir().replace("%", "%%")
    return f"[alembic]\nscript_location = {location}\npath_separator = os\nrevision_environment = true\n"


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of an upgrade. `bytes`: the size of its table with the indexes, None of a table that the upgrade makes."""

    revision: str
    phase: int
    step: str
    lock: str
    table: str | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps from revision `found` (None: new tables) to this code's: phase 1 is one transaction, phase 2 step by step."""

    found: str | None
    revision: str
    steps: list[PlannedStep]

    def as_json(self) -> dict[str, Any]:
        return {"from": self.found, "revision": self.revision, "steps": [asdict(step) for step in self.steps]}


def plan(url: str | PathLike[str], *, schema: str | None = None) -> Plan:
    """The plan of `persist upgrade`."""
    return ask_database(url, schema, _plan)


def _plan(connection: Connection, dialect: Dialect) -> Plan:
    found = found_revision(connection, dialect)
    scripts = ScriptDirectory.from_config(config())
    steps = [
        step
        for step in steps_between(scripts, found, HEAD, dialect.name)
        if step.kind != StepKind.STATEMENT or step.table != "_meta"
    ]
    operations = operations_of(dialect)
    sizes = operations.table_facts(connection.execute) if found is not None else {}
    apart = operations.left_of(connection, [] if dialect.one_file else afterwards(steps))
    first = operations.left_of(connection, [step for step in steps if dialect.one_file or not step.afterwards])

    def planned(step: Step, phase: int) -> PlannedStep:
        lock = "the file, until all is done" if dialect.one_file else locks_of(step)
        size = sizes.get(step.table or "", {}).get("bytes") if step.existing else None
        return PlannedStep(step.revision, phase, str(step), lock, step.table, size)

    return Plan(found, HEAD, [*[planned(step, 1) for step in first], *[planned(step, 2) for step in apart]])
