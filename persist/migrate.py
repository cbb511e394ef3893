"""Upgrading with Alembic, from the repository or from inside the wheel."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from persist.db.dialects.base import Dialect
from persist.db.engine import dialect_for
from persist.errors import MigrationFailed, PersistError, SchemaOutdated, SchemaTooNew, SchemaUnknown, UnmanagedDatabase
from persist.metadata import HEAD
from persist.revision import found_revision, verify
from persist.settings import Settings

R = TypeVar("R")


def script_dir() -> str:
    """Where the revisions of this installation are: inside the wheel, or at the top of the repository."""
    shipped = Path(__file__).with_name("_migrations")
    return str(shipped if shipped.is_dir() else Path(__file__).resolve().parents[1] / "alembic")


def config() -> Config:
    """An Alembic configuration for this installation."""
    made = Config()
    made.set_main_option("script_location", script_dir().replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    return made


def upgrade(url: str, *, schema: str | None = None) -> None:
    """Create or upgrade the tables of a database: what `persist upgrade` and `alembic upgrade head` do.

    A host's own tables are left alone. SchemaTooNew: a newer persist was here. SchemaUnknown: the version that is noted is
    none. UnmanagedDatabase: tables with our names, but without our version. MigrationFailed: nothing was changed.
    """
    dialect = dialect_for(url, Settings(), schema=schema)
    try:
        upgrade_with(dialect)
    finally:
        dialect.dispose()


def current(url: str, *, schema: str | None = None) -> str | None:
    """The revision a database is at; None where persist was never here."""
    return _look(url, schema, found_revision)


def check(url: str, *, schema: str | None = None) -> None:
    """SchemaOutdated, SchemaTooNew, SchemaUnknown or UnmanagedDatabase, unless the database is at this code's revision."""
    _look(url, schema, verify)


def _look(url: str, schema: str | None, question: Callable[[Connection, Dialect], R]) -> R:
    dialect = dialect_for(url, Settings(), schema=schema, read_only=True)
    try:
        with dialect.reader.connect() as connection:
            return question(connection, dialect)
    except PersistError:
        raise
    except Exception as error:
        raise (dialect.classify(error) or error) from error
    finally:
        dialect.dispose()


def upgrade_with(dialect: Dialect) -> None:
    """Upgrade through a dialect's own writer engine, in one transaction under the lock that env.py takes."""
    settings = config()
    found: str | None = None
    applied: list[str] = []
    started = False

    def before(connection: Connection) -> None:
        nonlocal found, started
        found = found_revision(connection, dialect)
        with suppress(SchemaOutdated):
            verify(connection, dialect)
        started = True

    try:
        with dialect.writer.connect() as connection:
            dialect.begin(connection, write=True)
            settings.attributes.update(connection=connection, schema=dialect.schema, before=before, applied=applied)
            command.upgrade(settings, "head")
            connection.commit()
    except (SchemaTooNew, SchemaUnknown, UnmanagedDatabase):
        raise
    except Exception as error:
        ours = dialect.classify(error) or error
        if not started:
            raise ours from error
        where = str(dialect.path or dialect.schema)
        raise MigrationFailed(where, found, HEAD, _failing(settings, found, applied), str(ours)) from error


def _failing(settings: Config, found: str | None, applied: list[str]) -> str | None:
    """The revision after the last one that worked."""
    order = [script.revision for script in ScriptDirectory.from_config(settings).walk_revisions()][::-1]
    last = applied[-1] if applied else found
    rest = order[order.index(last) + 1 :] if last in order else order
    return rest[0] if rest else None


def ini_text() -> str:
    """An alembic.ini for this installation, for hosts that run `alembic upgrade head` themselves."""
    return f"[alembic]\nscript_location = {script_dir().replace('%', '%%')}\npath_separator = os\n"
