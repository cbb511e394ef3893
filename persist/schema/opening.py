"""Verifies, creates or upgrades the schema of a database before a store is opened on it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Table, insert, update
from sqlalchemy import Dialect as SADialect
from sqlalchemy.schema import CreateIndex, CreateTable

from persist.chat.storage.unfolded_probe import ANY_DELTA
from persist.db.dialects.interface import Dialect
from persist.db.schema.base import SCHEMA_TOKEN, settings_of, table_of
from persist.db.schema.meta_table import Meta
from persist.db.statements import schema_version
from persist.db.statements.prepared import Kind, Statement, param
from persist.errors import Conflict, CopyUnfinished, SchemaOutdated, SchemaTooNew, StoreCorrupt, UnreadableRow
from persist.lazy_imports import lazy_module
from persist.schema.revision import verify

if TYPE_CHECKING:
    from persist import settings as configuration
    from persist.db.dialects import backends
    from persist.schema import metadata as catalog
    from persist.schema import migrate as migrating
else:
    configuration = lazy_module("persist.settings")
    backends = lazy_module("persist.db.dialects.backends")
    catalog = lazy_module("persist.schema.metadata")
    migrating = lazy_module("persist.schema.migrate")


_meta = table_of(Meta)


@dataclass(frozen=True, slots=True)
class OpeningFacts:
    """The facts that are read from a database when it is opened.

    scopes     the owners of the file: run_id, instance_id, workspace_id
    log_revision  the revision at which its log of events was switched on; None while it is off
    strict        how a file in which only persist may write some tables knows persist; None for any other
    has_deltas    whether there are text deltas to fold first; only checked in a writable file
    unfinished    whether a copy into the database has begun and not ended
    distributed   whether tables may be on other nodes of a cluster
    database_id   by what the database is known where it keeps bodies of blobs; None before it keeps any
    place         where on a server its tables are; None in a file
    """

    scopes: Mapping[str, str]
    log_revision: str | None = None
    has_deltas: bool = False
    unfinished: bool = False
    distributed: bool = False
    strict: str | None = None
    database_id: str | None = None
    place: str | None = None


def schema_map(url: str | PathLike[str] | URL, *, schema: str | None = None) -> dict[str, str | None]:
    """What the schema of `persist.orm` is called in a database: the `schema_translate_map` of a host's engine, or a part of it.

    `url`: of persist or of the engine, whatever its driver. Nothing connects. None for `schema` takes the value from Settings.
    """
    return {SCHEMA_TOKEN: backends.schema_for(url, schema or configuration.current_settings().schema_name)}


def prepare(dialect: Dialect, *, migrate: bool | None, copied_into: bool = False) -> OpeningFacts:
    """Check the version; create or upgrade if `migrate` (None: on SQLite). `copied_into`: a copy may be unfinished."""
    if migrate is False and not dialect.read_only and dialect.path is not None and not dialect.path.exists():
        # connecting would leave an empty file behind
        raise SchemaOutdated(None, schema_version.HEAD, dialect.tables.upgrade_command())
    with dialect.errors.translated():
        driver = dialect.connections.open_first(None if migrate is False else partial(_fill, dialect))
        if dialect.one_of_many:
            found = _glance(dialect)
        else:
            found = None if driver is None else _found(driver, dialect, schema_version.HEAD)
        if found is None:
            found = _prepared(dialect, migrate=migrate, looked=driver is not None or dialect.one_of_many, copied_into=copied_into)
        else:
            dialect.connections.prepare_database(driver)
        if found.unfinished and not copied_into:
            raise Conflict("A copy into this database began and did not end; copy again, or drop what is there.")
        return found


def _glance(dialect: Dialect) -> OpeningFacts | None:
    """Read the facts in one round trip, on a connection that the stores of other schemas use, too."""
    connections, transactions = dialect.connections, dialect.transactions
    connection = connections.lend(write=False)[0]
    try:
        driver = transactions.begin(connection, write=False)
        found = _found(driver, dialect, schema_version.HEAD, end=lambda: None)
        if found is None:
            driver.rollback()
        else:
            transactions.end_read(connection, driver)
    except BaseException:
        connections.discard(connection)
        raise
    connections.release(connection, write=False)
    return found


def _prepared(dialect: Dialect, *, migrate: bool | None, looked: bool, copied_into: bool) -> OpeningFacts:
    """Verify or upgrade through an engine. `looked`: the first connection has already been checked and was not current."""
    connection = dialect.connections.connect_first(write=not dialect.read_only)
    try:
        driver: Any = connection.connection.driver_connection
        dialect.connections.check_server(driver)
        found = None if looked else _found(driver, dialect, schema_version.HEAD)
        if found is None:
            try:
                _bring_up(connection, dialect, migrate=migrate)
                found = _found(driver, dialect, None) or OpeningFacts({})
            except CopyUnfinished:
                if not copied_into:
                    raise
                found = OpeningFacts({})  # what is left to fold, and whether the log is on, count once the copy is complete
        dialect.connections.prepare_database(driver)
    except BaseException:
        connection.close()
        raise
    if dialect.one_file or dialect.one_of_many:
        dialect.connections.release(connection, write=not dialect.read_only)
    else:
        connection.close()  # writers and readers share this pool, so one connection suffices at first
    return found


def _found(
    driver: Any, dialect: Dialect, revision: str | None, *, end: Callable[[], object] | None = None
) -> OpeningFacts | None:
    """Read the facts, and `has_deltas`; None unless at `revision` (None: any). `end` is called last, instead of a rollback."""
    try:
        noted = schema_version.scopes_at(lambda prepared: dialect.prepared[prepared].one(driver, {}), revision)
        if noted is None:
            return None
        log_revision, unfinished = noted.pop(schema_version.EVENTS, None), noted.pop(schema_version.UNFINISHED, None) is not None
        distributed, strict = noted.pop(schema_version.DISTRIBUTED, None) is not None, noted.pop(schema_version.STRICT, None)
        database_id, place = noted.pop(schema_version.DATABASE_ID, None), noted.pop(schema_version.PLACE, None)
        looks = dialect.path is not None and not dialect.read_only
        has_deltas = looks and dialect.prepared[ANY_DELTA].one(driver, {}) is not None
        return OpeningFacts(noted, log_revision, has_deltas, unfinished, distributed, strict, database_id, place)
    except UnreadableRow as error:
        if revision is not None:
            return None  # `verify` examines it next
        where = str(dialect.path or dialect.name)
        problem = f"a value of {error.table} cannot be read ({error.reason}); correct it, or restore a backup."
        raise StoreCorrupt(where, problem) from error
    except Exception as error:  # no such table: `verify` examines the new, foreign or older database next
        if revision is None or dialect.errors.translate_driver_error(error) is None:
            raise
        return None
    finally:
        (end or driver.rollback)()


def _bring_up(connection: Connection, dialect: Dialect, *, migrate: bool | None) -> None:
    may_write = not dialect.read_only and (migrate if migrate is not None else dialect.one_writer)
    try:
        verify(connection, dialect)
        connection.rollback()
        if may_write:
            _note_head(connection, dialect)
    except SchemaTooNew:
        if not dialect.read_only:
            raise
    except SchemaOutdated as outdated:
        connection.rollback()
        if not may_write:
            raise
        if outdated.found is None and dialect.one_writer:
            _create(connection, dialect)
        else:
            migrating.upgrade_with(dialect)
    finally:
        connection.rollback()


def create_new(dialect: Dialect, *, unfinished: bool) -> bool:
    """Create the tables where there are none, in one transaction; False: somebody has. `unfinished`: a copy is to follow."""

    def note(connection: Connection) -> None:
        if unfinished:
            connection.execute(insert(_meta), {"key": schema_version.UNFINISHED, "value": "copy"})

    if not dialect.one_writer:
        return migrating.upgrade_with(dialect, only_new=True, after=note)
    with dialect.errors.translated(), dialect.connections.writer.connect() as connection:
        dialect.connections.check_server(connection.connection.driver_connection)
        return _create(connection, dialect, note)


def _note_head(connection: Connection, dialect: Dialect) -> None:
    dialect.transactions.begin(connection, write=True)
    if not connection.execute(update(_meta).where(_meta.c.key == "schema_version").values(value=schema_version.HEAD)).rowcount:
        connection.execute(insert(_meta), {"key": "schema_version", "value": schema_version.HEAD})
    connection.commit()


def _create(connection: Connection, dialect: Dialect, note: Callable[[Connection], None] | None = None) -> bool:
    """Create tables and seed rows in one transaction, after a check under the write lock. False: they exist already."""
    dialect.transactions.begin(connection, write=True)
    try:
        verify(connection, dialect)
    except SchemaOutdated as outdated:
        if outdated.found is not None:
            raise
    else:
        return False
    _fill(dialect, connection.connection.driver_connection)
    if note is not None:
        note(connection)
    connection.commit()
    return True


def _fill(dialect: Dialect, driver: Any) -> None:
    for text in ddl(dialect):
        driver.execute(text)
    for statement, rows in _seeds():
        dialect.prepared[statement].run_many(driver, rows)


def ddl(dialect: Dialect) -> Sequence[str]:
    """The DDL statements that create every table, index and row guard of the models."""
    return _ddl(dialect.sqlalchemy_dialect, dialect.schema)


@lru_cache(maxsize=4)
def _ddl(kind: Kind, schema: str | None) -> Sequence[str]:
    made = kind()
    return [
        statement
        for table in (schema_version.version_table, *catalog.metadata.sorted_tables)
        for statement in _table(made, schema, table)
    ]


@lru_cache(maxsize=1)
def _seeds() -> Sequence[tuple[Statement, list[dict[str, Any]]]]:
    seeds = [(table, [*table.info["seed"]]) for table in catalog.metadata.sorted_tables if table.info.get("seed")]
    seeds.append((schema_version.version_table, [{"version_num": schema_version.HEAD}]))
    return [(Statement(insert(table).values({name: param(name) for name in rows[0]})), rows) for table, rows in seeds]


def table_ddl(dialect: Dialect, table: Table) -> list[str]:
    """The DDL statements that create a table, then its indexes, then its row guards."""
    return _table(dialect.connections.writer.dialect, dialect.schema, table)


def _table(dialect: SADialect, schema: str | None, table: Table) -> list[str]:
    options: dict[str, Any] = {
        "dialect": dialect,
        "schema_translate_map": {SCHEMA_TOKEN: schema},
        "render_schema_translate": True,
    }
    if schema is None:  # the DDL then names main., which SQLite drops from the stored statement
        dialect.default_schema_name = "main"
    of_dialect = (index for index in table.indexes if index.info.get("dialect", dialect.name) == dialect.name)
    indexes = sorted(of_dialect, key=lambda index: str(index.name))
    return [
        str(CreateTable(table).compile(**options)),
        *[str(settings.compile(**options)) for settings in settings_of(table, dialect)],
        *[str(CreateIndex(index).compile(**options)) for index in indexes],
        *backends.row_guard_ddl([table], dialect.name, schema),
    ]
