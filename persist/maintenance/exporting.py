"""Exports a store, or the rows of one session, as JSON Lines."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from sqlalchemy import Table

from persist.blobs.models import blobs, pieces
from persist.blobs.upkeep import brought_in
from persist.chat.models import parts
from persist.chat.upkeep import FOLDED, holds_deltas, with_deltas
from persist.db.dialects.bulk import Columns, Row
from persist.db.files import check_new_file, check_path, files, sync_file
from persist.db.files import replace as put_in_place
from persist.db.operations.upkeep import Exported, Rows
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.schema.scope_columns import OWN
from persist.db.values.arguments import OpenProgress, check_label
from persist.domains import upkeeps
from persist.errors import Conflict, NotFound, named
from persist.maintenance import lines, unknown_columns
from persist.maintenance.copying import FIXED
from persist.maintenance.table_keys import key_columns, key_in
from persist.maintenance.transactions import TABLES, Session, rows_in, session
from persist.maintenance.unknown_columns import Key, Unknown, unknown_key
from persist.programs.upkeep import FILES, SCOPE
from persist.store.store import Store

# Collects the export rules of the domains: the rows of a session, and tables whose rows sessions share.

KINDS = tuple(kind for upkeep in upkeeps().values() for kind in upkeep.exports)


def kind_of(session: Session, id: str) -> tuple[Exported, str]:
    """The first kind of session or run with this id, and the id, or what else it names. Raises NotFound, or Conflict."""
    for kind in KINDS:
        if session.work.row(kind.found, session=id) is not None:
            return kind, id
    for kind in KINDS:
        found = [] if kind.named is None else session.work.rows(kind.named, session=id)
        if len(found) > 1:
            raise Conflict(f"{named(id)} names several: {', '.join(row[0] for row in found)}; give one of these ids.")
        for row in found:
            return kind, row[0]
    raise NotFound("session or run", id)


def _all(rows: tuple[Rows, ...]) -> Iterator[Rows]:
    for one in rows:
        yield one
        yield from _all(one.then)


SHARED: frozenset[Table] = frozenset(rows.table for kind in KINDS for rows in _all(kind.rows) if rows.shared)
"""Tables whose rows several sessions may share. An import accepts an existing row of these tables if it is equal."""


_META = table_of(Meta)
_NOT_TAKEN = (_META, FOLDED)
"""Tables whose rows an import takes in part: their unknown columns cannot be carried."""
Keys = Mapping[Table, AbstractSet[Key]]


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written: row counts by table, in the order of the file.

    `kind`: what the session id belongs to, such as "chat session". None for a whole store. `carried`: what persist does not know
    and the file has, too: values by table.column, rows by table. `left_unknown`: what was left on request, in the same form.
    `filled`: by table.column, how many values the file has where nothing is stored and other databases have to hold something.
    `computed`: table.column of what the database computes, which the file lacks.
    `files`: attachments of runs that the rows name, relative to the folder of the run. The export does not contain them.
    """

    tables: dict[str, int]
    kind: str | None = None
    files: tuple[str, ...] = ()
    left_unknown: Mapping[str, int] = field(default_factory=dict)
    carried: Mapping[str, int] = field(default_factory=dict)
    filled: Mapping[str, int] = field(default_factory=dict)
    computed: tuple[str, ...] = ()


def export(
    store: Store,
    path: Path | str | IO[bytes],
    *,
    session_id: str | None = None,
    overwrite: bool = False,
    leave_unknown: bool = False,
    progress: OpenProgress | None = None,
) -> ExportReport:
    """Write all rows, or the rows of a session, from one snapshot. docs/moving.md describes the format.

    `session_id`: the id of a chat session, a conversation, a messaging session, a workflow run, a program's run, a checkpoint
    thread or a transcript, which its session's id names, too. Raises NotFound for an unknown id, Conflict for one of several
    transcripts. Columns that persist does not know, and in an export of all rows tables `x_…`, are written with their values
    unless `leave_unknown` leaves them. Raises InvalidValue for text in them that is not UTF-8. A file appears under its name only
    when it is complete, and only its owner may read it. Raises Conflict if the file exists, unless `overwrite`. `progress`:
    called with the table at hand, the rows written, and how many there are, which of one session nobody knows.
    """
    with session(store, writable=False) as reading:
        kind, id = (None, "") if session_id is None else kind_of(reading, check_label("session_id", session_id))
        values = {} if kind is None else {"session": id, "scope": OWN if reading.scopes.get(SCOPE) == id else id}
        unknown, keys = _unknown_in_export(reading, kind, values)
        reading.bulk.filled.clear()  # by what only looked for keys
        left = unknown_columns.counts_of(unknown) if leave_unknown else {}
        if leave_unknown:
            unknown = []
        unknown_columns.refuse(unknown_columns.counts_of(one for one in unknown if one.known in _NOT_TAKEN), "an export")
        with opened(store, path, overwrite) as stream:
            writer = lines.LineWriter(stream)
            runtime = store.runtime
            writer.header(
                database=runtime.dialect.name,
                at=runtime.clock(),
                session_id=session_id if kind is None else id,
                scopes=reading.scopes,
                unknown=lines.declaration(unknown),
            )
            export = _Export(reading, writer, progress)
            if kind is None:
                export.count()
                for table in TABLES:
                    export.whole(table)
                export.unknown(unknown)
                highest = {table.name: reading.bulk.highest(table) for table in TABLES}
                writer.end({str(name): value for name, value in highest.items() if value is not None})
            else:
                export.part(kind, values)
                export.unknown(unknown, keys)
                writer.end({})
        filled = dict(reading.bulk.filled)
        computed = unknown_columns.computed_in(reading)
        computed = tuple(name for name in computed if kind is None or name.split(".")[0] in writer.tables)
    what, files_beside = None if kind is None else kind.kind, tuple(sorted(export.files))
    return ExportReport(writer.tables, what, files_beside, left, unknown_columns.counts_of(unknown), filled, computed)


def _unknown_in_export(reading: Session, kind: Exported | None, values: Mapping[str, str]) -> tuple[list[Unknown], Keys | None]:
    """The tables and columns of exported rows that persist does not know; for a session also the keys of these rows."""
    found = unknown_columns.unknown_in(reading)
    if kind is None:
        return found, None
    tables = {rows.table for rows in _all(kind.rows)}
    some = [one for one in found if one.known in tables]
    keys = _exported_keys(reading, kind, values, some)
    of_session = []
    for one in some:
        counts = Counter[str]()
        for row in _unknown_rows(reading, one, keys):
            counts.update(
                column.name for column, value in zip(one.columns, row[len(unknown_key(one)) :], strict=True) if value is not None
            )
        columns = tuple(replace(column, values=counts[column.name]) for column in one.columns if counts[column.name])
        if columns:
            of_session.append(replace(one, columns=columns))
    return of_session, keys


def _exported_keys(reading: Session, kind: Exported, values: Mapping[str, str], unknown: Sequence[Unknown]) -> Keys:
    """A session's keys, by table, for tables with columns that persist does not know."""
    keys: dict[Table, set[Key]] = {one.known: set() for one in unknown if one.known is not None}
    for table, rows in _rows_of_session(reading, kind.rows, values) if keys else ():
        if table in keys:
            keys[table] |= {tuple(key_in(row, tuple(table.columns), key_columns(table))) for row in rows}
    return keys


def _unknown_rows(reading: Session, one: Unknown, keys: Keys | None) -> Iterator[Row]:
    """The values of unknown columns, for the rows with these keys or for all."""
    key = unknown_key(one)
    for rows in unknown_columns.read_unknown(reading, one):
        for row in rows:
            if keys is None or one.known is None or tuple(key_in(row, key, key)) in keys[one.known]:
                yield row


def _rows_of_session(reading: Session, wanted: Iterable[Rows], values: Mapping[str, str]) -> Iterator[tuple[Table, list[Row]]]:
    """The rows of a session, in the order of the file."""
    for one in wanted:
        compiled = reading.store.runtime.prepared[one.statement]
        for rows in reading.bulk.batches(compiled, tuple(one.table.columns), values):
            if not one.then:
                yield one.table, rows
                continue
            for row in rows:
                yield one.table, [row]
                yield from _rows_of_session(reading, one.then, {**values, "row_key": row[0]})


class _Export:
    def __init__(self, reading: Session, writer: lines.LineWriter, progress: OpenProgress | None) -> None:
        self.reading, self.writer, self.progress = reading, writer, progress
        self.done = 0
        self.total: int | None = None
        self.folds = holds_deltas(reading.work)
        self.files: set[str] = set()

    def count(self) -> None:
        """Count the rows of a whole export, to report progress."""
        if self.progress is not None:
            self.total = sum(rows_in(self.reading, table) for table in TABLES if table is not FOLDED)

    def whole(self, table: Table) -> None:
        if table is FOLDED:
            return
        columns = tuple(table.columns)
        for rows in self.reading.bulk.batches(self.reading.whole(table), columns):
            self._write(columns, [row for row in rows if not (table is _META and row[0] in FIXED)])

    def part(self, kind: Exported, values: Mapping[str, str]) -> None:
        for table, rows in _rows_of_session(self.reading, kind.rows, values):
            self._write(tuple(table.columns), rows)

    def unknown(self, found: Sequence[Unknown], keys: Keys | None = None) -> None:
        """Write tables and columns that persist does not know, for rows with these keys only."""
        for one in found:
            for row in _unknown_rows(self.reading, one, keys):
                if self.progress is not None:
                    self.progress(one.table, self.done, self.total)
                lines.write_unknown(self.writer, one, [row])

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
def opened(store: Store, path: Path | str | IO[bytes], overwrite: bool) -> Iterator[IO[bytes]]:
    """Yield the given stream, or a temporary file that is renamed to `path` unless an error is raised."""
    if not isinstance(path, Path | str):
        yield path
        return
    target = check_path("path", path)
    check_new_file(store.runtime.dialect.path, target, overwrite=overwrite)
    with files(target):
        number, name = tempfile.mkstemp(prefix=".export-", suffix=".part", dir=target.parent)  # only its owner may read it
        try:
            with open(number, "wb") as stream:
                yield stream
                stream.flush()
                sync_file(number)
            put_in_place(name, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
