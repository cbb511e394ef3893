"""Adopts a file of another program: checks whether that is needed, makes a backup, and changes it in one transaction."""

import logging
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from persist.db.dialects.backends import dialect_for, file_dialect
from persist.db.dialects.interface import Dialect
from persist.db.dialects.sqlite.foreign_files import ForeignFile
from persist.db.operations.upkeep import file_to_adopt
from persist.db.schema.base import VERSION_TABLE
from persist.db.statements.schema_version import read_version
from persist.db.values.arguments import Progress
from persist.db.values.clock import Clock, system_clock
from persist.errors import InvalidValue, PersistError
from persist.schema.adopt.changes import STEPS, AdoptReport, Changes
from persist.schema.metadata import HEAD, domain_of, metadata
from persist.schema.opening import prepare
from persist.settings import Settings

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
    """Adopt the file; None if it has no table with one of persist's names."""
    path = file_to_adopt(dialect)

    def tell(done: int) -> None:
        if progress is not None:
            progress(STEPS[done], done, len(STEPS))

    def work(file: ForeignFile) -> AdoptReport | None:
        for enforcing in (True, False):
            file.begin(enforcing=enforcing)
            if _is_ours(dialect, file.connection):
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


def _is_ours(dialect: Dialect, connection: Connection) -> bool:
    return VERSION_TABLE in dialect.tables.names(connection) and read_version(connection) is not None


def _with_file(dialect: Dialect, work: Callable[[ForeignFile], R]) -> R:
    """Call `work` with the file on a connection of the dialect; roll back and translate any error."""
    try:
        with dialect.connections.writer.connect() as connection:
            file = ForeignFile(dialect, connection)
            try:
                return work(file)
            except BaseException:
                file.rollback()
                raise
    except PersistError:
        raise
    except Exception as error:
        raise (dialect.errors.classify(error) or error) from error
