"""Exports a store, or the rows of one session, as JSON Lines."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from sqlalchemy import Table

from persist.blobs.models import blobs, pieces
from persist.blobs.upkeep import brought_in
from persist.chat.exporting import FOLDED, has_deltas, with_deltas
from persist.chat.models import parts
from persist.db.dialects.bulk import Columns, Row
from persist.db.files.paths import check_path, files
from persist.db.files.private_files import replace, sync_file
from persist.db.operations.exporting import Rows
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.values.arguments import check_label
from persist.db.values.progress import OpenProgress
from persist.errors import Conflict, InvalidValue, NotFound
from persist.maintenance.empty_store import FIXED
from persist.maintenance.exported import kind_of, tables_of, values_for
from persist.maintenance.lines import LineWriter
from persist.maintenance.transactions import TABLES, Session, rows_in, session
from persist.maintenance.unknown import counts_of, refuse, unknown_in
from persist.programs.upkeep import FILES
from persist.store.store import Store

_META = table_of(Meta)


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written: row counts by table, in the order of the file.

    `kind`: what the session id belongs to, such as "chat session". None for a whole store.
    `left_unknown`: what persist does not know and was left on request, values by table.column and rows by table.
    `files`: attachments of runs that the rows name, relative to the folder of the run. The export does not contain them.
    """

    tables: dict[str, int]
    kind: str | None = None
    files: tuple[str, ...] = ()
    left_unknown: Mapping[str, int] = field(default_factory=dict)


def export(
    store: Store,
    path: Path | str | IO[bytes],
    *,
    session_id: str | None = None,
    overwrite: bool = False,
    leave_unknown: bool = False,
    progress: OpenProgress | None = None,
) -> ExportReport:
    """Write all rows, or those of one session, from one snapshot. `persist.maintenance.lines` describes the format.

    `session_id`: the id of a chat session, a conversation, a messaging session, a workflow run, a program's run, a checkpoint
    thread or a transcript, which its session's id names, too. Raises NotFound for an unknown id, Conflict for one of several
    transcripts. Raises InvalidValue for columns and tables that persist does not know, unless `leave_unknown` leaves them. A file
    appears under its name only when it is complete, and only its owner may read it. Raises Conflict if the file exists, unless
    `overwrite`. `progress`: called with the table at hand, the rows written, and how many there are, which of one session nobody
    knows.
    """
    with session(store, writable=False) as reading:
        kind, id = (None, "") if session_id is None else kind_of(reading, check_label("session_id", session_id))
        unknown = counts_of(one for one in unknown_in(reading) if kind is None or one.known in tables_of(kind))
        if not leave_unknown:
            refuse(unknown, "an export")
        with opened(path, overwrite) as stream:
            writer = LineWriter(stream)
            runtime = store.runtime
            writer.header(
                database=runtime.dialect.name,
                at=runtime.clock(),
                session_id=session_id if kind is None else id,
                scopes=reading.scopes,
            )
            export = _Export(reading, writer, progress)
            if kind is None:
                export.count()
                for table in TABLES:
                    export.whole(table)
                highest = {table.name: reading.bulk.highest(table) for table in TABLES}
                writer.end({str(name): value for name, value in highest.items() if value is not None})
            else:
                values = values_for(reading, id)
                for rows in kind.rows:
                    export.part(rows, values)
                writer.end({})
    return ExportReport(writer.tables, None if kind is None else kind.kind, tuple(sorted(export.files)), unknown)


class _Export:
    def __init__(self, reading: Session, writer: LineWriter, progress: OpenProgress | None) -> None:
        self.reading, self.writer, self.progress = reading, writer, progress
        self.done = 0
        self.total: int | None = None
        self.folds = has_deltas(reading.work)
        self.files: set[str] = set()

    def count(self) -> None:
        """Find out how many rows a whole export has, for those who want to know how far it is."""
        if self.progress is not None:
            self.total = sum(rows_in(self.reading, table) for table in TABLES if table is not FOLDED)

    def whole(self, table: Table) -> None:
        if table is FOLDED:
            return
        columns = tuple(table.columns)
        for rows in self.reading.bulk.batches(self.reading.whole(table), columns):
            self._write(columns, [row for row in rows if not (table is _META and row[0] in FIXED)])

    def part(self, wanted: Rows, values: dict[str, str]) -> None:
        columns = tuple(wanted.table.columns)
        compiled = self.reading.store.runtime.prepared[wanted.statement]
        for rows in self.reading.bulk.batches(compiled, columns, values):
            if not wanted.then:
                self._write(columns, rows)
                continue
            for row in rows:
                self._write(columns, [row])
                for following in wanted.then:
                    self.part(following, {**values, "row_key": row[0]})

    def _write(self, columns: Columns, rows: list[Row]) -> None:
        self.done += len(rows)
        if self.progress is not None:
            self.progress(str(columns[0].table.name), self.done, self.total)
        if columns[0].table is blobs:
            rows, moved = brought_in(self.reading.store.runtime, rows)
            self.writer.rows(columns, rows)
            for piece in moved:
                self.writer.rows(tuple(pieces.columns), [piece])
            return
        if self.folds and columns[0].table is parts:
            rows = with_deltas(self.reading.work, rows)
        if columns[0].table is FILES.table:
            place = columns.index(FILES)
            self.files |= {str(row[place]) for row in rows if row[place] is not None}
        self.writer.rows(columns, rows)


@contextmanager
def opened(path: Path | str | IO[bytes], overwrite: bool) -> Iterator[IO[bytes]]:
    """Yield the given stream, or a temporary file that is renamed to `path` unless an error is raised."""
    if not isinstance(path, Path | str):
        yield path
        return
    target = check_path("path", path)
    if target.is_dir():
        raise InvalidValue("path", f"{target} is a folder.")
    if not target.parent.is_dir():
        raise NotFound("folder", str(target.parent))
    if target.exists() and not overwrite:
        raise Conflict(f"{target} exists already; nothing was written.")
    with files(target):
        number, name = tempfile.mkstemp(prefix=".export-", suffix=".part", dir=target.parent)  # only its owner may read it
        try:
            with open(number, "wb") as stream:
                yield stream
                stream.flush()
                sync_file(number)
            replace(name, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
