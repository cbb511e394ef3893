"""Creates the SQLite or Postgres version of each database tool; its module is imported on first use."""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, Table, make_url
from sqlalchemy.exc import ArgumentError

from persist.db.changes.batch import Batch, Pending
from persist.db.connections import check_connection, check_engine
from persist.db.dialects.interface import Dialect, TenantServer
from persist.db.dialects.postgres.urls import check_options, is_server, server_url
from persist.db.files import check_path
from persist.db.schema.row_guards import GUARDS
from persist.db.statements.prepared import Row
from persist.errors import InvalidValue, NotFound, UnsupportedEngine
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.db.dialects.bulk import Bulk
    from persist.db.dialects.event_guards import EventGuards
    from persist.db.dialects.interface import DatabaseOperations, VectorFunctions
    from persist.db.dialects.postgres import bulk as postgres_bulk
    from persist.db.dialects.postgres import dialect as postgres
    from persist.db.dialects.postgres import event_guards as postgres_event_guards
    from persist.db.dialects.postgres import operations as postgres_operations
    from persist.db.dialects.postgres import raw_writes as postgres_raw_rows
    from persist.db.dialects.postgres import row_guards as postgres_row_guards
    from persist.db.dialects.postgres import tenant_server as postgres_tenants
    from persist.db.dialects.postgres.tenant_server import SubagentAccess as SubagentAccess
    from persist.db.dialects.raw_rows import RawRows
    from persist.db.dialects.sqlite import bulk as sqlite_bulk
    from persist.db.dialects.sqlite import dialect as sqlite
    from persist.db.dialects.sqlite import event_guards as sqlite_event_guards
    from persist.db.dialects.sqlite import foreign_files as sqlite_references
    from persist.db.dialects.sqlite import operations as sqlite_operations
    from persist.db.dialects.sqlite import raw_writes as sqlite_raw_rows
    from persist.db.dialects.sqlite import row_guards as sqlite_row_guards
    from persist.settings import Settings
else:
    postgres = lazy_module("persist.db.dialects.postgres.dialect")
    postgres_tenants = lazy_module("persist.db.dialects.postgres.tenant_server")
    sqlite = lazy_module("persist.db.dialects.sqlite.dialect")
    sqlite_references = lazy_module("persist.db.dialects.sqlite.foreign_files")
    for _name in ("postgres", "sqlite"):
        for _tool in ("bulk", "event_guards", "operations", "row_guards"):
            globals()[f"{_name}_{_tool}"] = lazy_module(f"persist.db.dialects.{_name}.{_tool}")
        globals()[f"{_name}_raw_rows"] = lazy_module(f"persist.db.dialects.{_name}.raw_writes")


_EXPECTED = 'expected sqlite:///path/to/file.db or postgresql://host/database, or a Path, as in Store.open(Path("state.db")).'
_SQLITE = {"sqlite", "sqlite+pysqlite"}


def dialect_for(
    url: str | PathLike[str],
    settings: "Settings",
    *,
    schema: str | None = None,
    pooler: str | None = None,
    read_only: bool = False,
) -> Dialect:
    """Create the dialect for `sqlite:///file`, `sqlite:///:memory:`, `postgresql://…` or a file's path, without connecting."""
    parsed = _parsed(url)
    if parsed is None:  # the text itself may hold a password, so it is not repeated, nor is the error about it kept
        raise InvalidValue("url", _EXPECTED)
    if parsed.drivername in _SQLITE:
        return sqlite.sqlite_dialect(_file(parsed), settings, read_only=read_only)
    if is_server(parsed):
        _check_server("url", parsed)
        return postgres.postgres_dialect(
            parsed, check_schema(schema or settings.schema_name), pooler=pooler or settings.pooler, read_only=read_only
        )
    raise UnsupportedEngine(parsed.drivername, "persist runs on sqlite:/// and postgresql:// URLs.")


def check_listen_url(url: str) -> None:
    """Raise InvalidValue unless the URL is that of a Postgres server, which supports LISTEN."""
    parsed = _parsed(url)
    if parsed is None or not is_server(parsed):
        raise InvalidValue("listen_url", "expected postgresql://host/database.")
    _check_server("listen_url", parsed)


def _check_server(name: str, url: URL) -> None:
    if "@" in (url.host or ""):  # part of a password with an @, which an error about the host would reveal
        raise InvalidValue(name, "an @ in a password must be percent-encoded, as %40.")
    check_options(name, url)


def _parsed(given: str | PathLike[str] | URL) -> URL | None:
    url: Any = given
    if isinstance(given, PathLike):
        name = os.fsdecode(given)
        url = URL.create("sqlite", database=os.path.join(os.curdir, name) if name == ":memory:" else name)
    if "\0" in str(url) or "%00" in str(url):  # drivers in C ignore everything after a NUL
        return None
    try:
        return server_url(url) if is_server(url) else make_url(url)
    except (ArgumentError, ValueError, AttributeError):
        return None


def _file(url: URL) -> Path | None:
    if url.host or url.username or url.query:
        raise InvalidValue("url", "a SQLite URL is sqlite:///FILE, without host and options; see read_only= and Settings.")
    if url.database in (None, "", ":memory:"):
        return None
    path = check_path("url", url.database)
    if path.is_dir():
        raise InvalidValue("url", f"{path} is a folder, not a SQLite file.")
    if path.exists() and not path.is_file():
        raise InvalidValue("url", f"{path} is not a file.")
    if not path.parent.is_dir():
        raise NotFound("folder", str(path.parent))
    return path


def tenant_server(url: str | PathLike[str], settings: "Settings", *, pooler: str | None = None) -> TenantServer:
    """Create the server of many tenants for `sqlite:///folder` or a path, which must exist, or `postgresql://…`."""
    parsed = _parsed(url)
    if parsed is not None and is_server(parsed):
        _check_server("url", parsed)
        return postgres_tenants.PostgresTenants(parsed, pooler=pooler or settings.pooler)
    if parsed is None or parsed.drivername not in _SQLITE:
        raise InvalidValue("url", "expected sqlite:///path/to/folder, its Path or postgresql://host/database.")
    if parsed.host or parsed.username or parsed.query or parsed.database in (None, "", ":memory:"):
        raise InvalidValue("url", "the URL of tenants in files is sqlite:///FOLDER, without host and options.")
    folder = check_path("url", parsed.database)
    if folder.is_file():
        raise InvalidValue("url", f"{folder} is a file, not a folder of tenants' files.")
    if not folder.is_dir():
        raise NotFound("folder", str(folder))
    return sqlite.SqliteTenants(folder, settings)


def file_dialect(path: Path, settings: "Settings", *, read_only: bool = False) -> Dialect:
    """Create the dialect of a file that belongs to one run, agent or instance. A new file gets small pages."""
    return sqlite.sqlite_dialect(path, settings, read_only=read_only, page_size=1024)


def dialect_of(engine: Engine, settings: "Settings", *, schema: str | None = None) -> Dialect:
    """Create the dialect for a caller's engine, whose pool, pragmas and settings stay as they are."""
    engine = check_engine(engine)
    if engine.dialect.name == "sqlite" and engine.dialect.driver == "pysqlite":
        return sqlite.of_engine(engine, settings)
    if engine.dialect.name == "postgresql" and engine.dialect.driver == "psycopg":
        return postgres.of_engine(engine, check_schema(schema or settings.schema_name))
    found = f"{engine.dialect.name}+{engine.dialect.driver}"
    raise UnsupportedEngine(found, "persist runs on engines of sqlite (the standard library's driver) and postgresql+psycopg.")


def prepare_engine(engine: Any) -> None:
    """Switch foreign keys on for every connection that a host's engine of SQLite opens from now on; Postgres has them always.

    Call it before the engine connects. `engine`: of create_engine or create_async_engine.
    """
    sync: Any = getattr(engine, "sync_engine", engine)
    if not isinstance(sync, Engine):
        raise InvalidValue("engine", f"expected an engine of SQLAlchemy, got {type(engine).__name__}.")
    if sync.dialect.name == "sqlite":
        sqlite_references.prepare(sync)


def schema_for(url: str | PathLike[str] | URL, schema: str) -> str | None:
    """What the schema of persist's tables is called in the database of a URL, whatever its driver. None on SQLite."""
    parsed = _parsed(url)
    if parsed is None:
        raise InvalidValue("url", _EXPECTED)
    name = parsed.get_backend_name()
    if name == "sqlite":
        return None
    if name == "postgresql":
        return check_schema(schema)
    raise UnsupportedEngine(parsed.drivername, "persist runs on SQLite and Postgres.")


def lent_dialect(given: Engine | Connection, settings: "Settings", *, schema: str | None = None) -> Dialect:
    """Create the dialect for a caller's engine or connection, to inspect or create the tables."""
    if isinstance(given, Connection):
        check_connection(given, given.dialect.name, asynchronous=False)
    engine = given.engine if isinstance(given, Connection) else check_engine(given)
    if engine.dialect.name == "sqlite":
        return sqlite.lent(engine, settings)
    if engine.dialect.name == "postgresql":
        return postgres.of_engine(engine, check_schema(schema or settings.schema_name))
    raise UnsupportedEngine(engine.dialect.name, "persist runs on SQLite and Postgres.")


def check_schema(name: str) -> str:
    """Return the schema name, or raise InvalidValue unless it consists of letters, digits and underscores."""
    if not (name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit() and len(name) <= 63):
        raise InvalidValue("schema", f"{name!r} is not a schema name of letters, digits and underscores.")
    return name


def dialect_for_file(path: Path, settings: "Settings") -> Dialect:
    """Create the dialect for an existing file."""
    return dialect_for(f"sqlite:///{path.as_posix()}", settings)


def operations_of(dialect: Dialect) -> "DatabaseOperations":
    """The administrative operations for the dialect's database."""
    if dialect.schema is None:
        return sqlite_operations.SqliteOperations(dialect)
    return postgres_operations.PostgresOperations(dialect)


def bulk_of(dialect: Dialect, driver: Any) -> "Bulk":
    """Bulk reads and writes inside the driver connection's current transaction."""
    return sqlite_bulk.SqliteBulk(dialect, driver) if dialect.schema is None else postgres_bulk.PostgresBulk(dialect, driver)


def raw_rows_of(dialect: Dialect, driver: Any) -> "RawRows":
    """Access to raw rows inside the driver connection's current transaction."""
    if dialect.schema is None:
        return sqlite_raw_rows.SqliteRawRows(driver)
    return postgres_raw_rows.PostgresRawRows(driver, dialect.schema, dialect.transactions.reading_cursor)


def event_guards_of(dialect: Dialect) -> "EventGuards":
    """The guard triggers of the event log for the dialect's database."""
    if dialect.schema is None:
        return sqlite_event_guards.SqliteEventGuards()
    return postgres_event_guards.PostgresEventGuards(dialect.schema)


def row_guard_ddl(tables: Iterable[Table], name: str, schema: str | None) -> list[str]:
    """The DDL statements that create the row guards of those of the tables that have some, for the named dialect."""
    of_table = sqlite_row_guards.row_guard_ddl if name == "sqlite" else partial(postgres_row_guards.row_guard_ddl, schema=schema)
    return [statement for table in tables if GUARDS in table.info for statement in of_table(table)]


def strict_guard_ddl(tables: Sequence[Table]) -> list[str]:
    """The DDL statements that let nobody but persist change these tables of a SQLite file."""
    return sqlite_row_guards.strict_guard_ddl(tables)


def ask_row_guards(dialect: Dialect, batch: Batch) -> Pending[list[Row]]:
    """Look for the row guards of the database with a batch, for `missing_row_guards`."""
    if dialect.schema is None:
        return batch.rows(sqlite_row_guards.FOUND)
    return batch.rows(postgres_row_guards.FOUND, schema=dialect.schema)


def missing_row_guards(
    dialect: Dialect, found: Sequence[Row], tables: Sequence[Table], strict: Sequence[Table] = (), *, marked_rows: bool = False
) -> list[str]:
    """The names of these tables' row guards that are missing or not as they should be. Options as for `strict_guard_ddl`."""
    if dialect.schema is None:
        return sqlite_row_guards.missing_row_guards(found, tables, strict, marked_rows=marked_rows)
    return postgres_row_guards.missing_row_guards(found, tables)


def unknown_triggers(dialect: Dialect, found: Sequence[Row], tables: Sequence[Table], strict: Sequence[Table] = ()) -> list[str]:
    """The names of found triggers of these tables that persist did not make; `strict` as above."""
    if dialect.schema is None:
        return sqlite_row_guards.unknown_triggers(found, tables, strict)
    return postgres_row_guards.unknown_triggers(found, tables)


def lift_row_guards(dialect: Dialect, driver: Any) -> Callable[[], None]:
    """Let the open transaction carry or repair rows that break the rules of row guards, until the returned function is called."""
    if dialect.schema is None:
        return sqlite_row_guards.lift_row_guards(driver)
    return postgres_row_guards.lift_row_guards(driver)


def vector_functions_of(dialect: Dialect, connection: Connection) -> "VectorFunctions | None":
    """The distance functions, loaded into one of persist's own connections at the first call; None where unavailable."""
    return sqlite_operations.sqlite_vec_functions(connection) if dialect.schema is None else None


def subagent_access(dialect: Dialect) -> "SubagentAccess | None":
    """How subagents with a token connect to the dialect's server; None for a file, which has no roles."""
    if dialect.schema is None:
        return None
    return postgres_tenants.SubagentAccess(dialect.connections.writer.url, dialect.schema)
