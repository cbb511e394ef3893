"""Copies a store into an empty store of any dialect, in one transaction, and compares checksums at the end."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson
from sqlalchemy import Column, Table, delete, select, true

from persist.blobs.body_stores import BlobStore
from persist.blobs.models import blobs, pieces
from persist.blobs.repository import ADD_PIECE, outside_of
from persist.chat.models import part_blobs, parts
from persist.chat.storage.files import NAME_BLOB
from persist.db.changes.journal import logged_tables
from persist.db.dialects.bulk import Columns, Row, converted
from persist.db.expressions.upsert import insert_missing
from persist.db.formats import Form, Step, form_of
from persist.db.schema.base import VERSION_TABLE, table_of
from persist.db.schema.column_types import among_labels
from persist.db.schema.meta_table import Meta
from persist.db.schema.scope_columns import OWN, scope_of
from persist.db.statements.prepared import Statement, param
from persist.db.statements.schema_version import DATABASE_ID, EVENTS, OWN_SCOPES, STRICT, UNFINISHED
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork, chunks
from persist.db.values.arguments import Progress, check_label
from persist.errors import Conflict, InvalidValue, StoreCorrupt, shown
from persist.events.models import LOG_TABLES
from persist.events.switching import take_positions
from persist.framework_state.app_sessions.models import artifact_blobs, artifact_versions
from persist.maintenance.table_keys import Key, comparable, key_columns, key_in
from persist.maintenance.transactions import TABLES, Session, rows_in, session
from persist.maintenance.unknown_columns import Carrying, all_rows, computed_in, unknown_in
from persist.programs.models import STRICT_TABLES
from persist.store.store import Store

_BYTES = 16
_MAX_TEXT = 4096
_MODULUS = 2 ** (8 * _BYTES)


class Checksum:
    """The sum of the hashes of a table's rows, which does not depend on their order, or on columns `of_this_database`.

    `own`: the scope ids for rows that are stored with an empty scope column, because they belong to the file itself.
    `raw`: the rows have the values stored in a file, which may be unreadable; otherwise rows are in the published form.
    """

    def __init__(self, columns: Columns, own: Mapping[str, str], *, raw: bool = False) -> None:
        self.rows = 0
        self.bytes = 0
        self._sum = 0
        self._columns = columns
        self._steps = [_step(column, own, raw) for column in columns]

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows to the sum. InvalidValue names the table, column and row of invalid JSON."""
        self.add_texts(self.texts(rows))

    def texts(self, rows: Sequence[Row]) -> list[bytes]:
        """Return what is hashed of each row: it is equal for two databases with the same row."""
        return [orjson.dumps(row) for row in converted(rows, self._columns, self._steps)]

    def add_texts(self, texts: Sequence[bytes]) -> None:
        total = self._sum
        for text in texts:
            self.bytes += len(text)
            total += int.from_bytes(blake2b(text, digest_size=_BYTES).digest())
        self._sum = total % _MODULUS
        self.rows += len(texts)

    def __str__(self) -> str:
        return f"{self._sum:0{2 * _BYTES}x}"


def _step(column: Column[Any], own: Mapping[str, str], raw: bool) -> Step | None:
    if column.info.get("of_this_database"):
        return lambda _: None
    form, scope = form_of(column), scope_of(column)
    if scope is not None and scope in own:
        mine = own[scope]
        return lambda stored: stored or mine
    logical = _lenient(form) if raw else form.logical
    if not raw and not form.large:
        return logical
    return lambda value: _short(value if logical is None else logical(value))


def _lenient(form: Form) -> Step:
    checked, logical = form.checked, form.logical

    def step(value: Any) -> Any:
        try:
            right = checked(value)
            return right if logical is None else logical(right)
        except InvalidValue:
            return value

    return step


def _short(value: Any) -> Any:
    """Replace bytes and long text by their hash: the JSON encoder would need eight times their size in memory."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else blake2b(value.encode("utf-8", "surrogatepass")).hexdigest()
    return blake2b(value).hexdigest() if isinstance(value, bytes) else value


# Checks whether a database is empty, apart from the rows that always exist.

META = table_of(Meta)
FIXED = frozenset({"schema_version", DATABASE_ID})
"""The keys of the `_meta` rows that are never copied or exported, because each database has its own."""


def meta_rows(rows: Sequence[Row], *, one_file: bool) -> list[Row]:
    """The rows of `_meta` that a copy into a file, or into a server, takes along."""
    left = FIXED if one_file else {*FIXED, STRICT, *OWN_SCOPES}
    return [row for row in rows if row[0] not in left]


def guard(target: Session, rows: Sequence[Row]) -> tuple[bool, bool]:
    """Guard the log of events, and a strict file, where the copied rows of `_meta` name them; whether they do."""
    keys = {row[0] for row in rows}
    if EVENTS in keys:  # the log was copied completely, and the copy continues it
        target.work.whole_tables.guard_log(logged_tables(TABLES), LOG_TABLES)
    if STRICT in keys:
        target.work.whole_tables.guard_strictly(STRICT_TABLES)
    return EVENTS in keys, STRICT in keys


def first_with_rows(target: Session) -> str | None:
    """Return the first table with rows other than those that always exist, or None for an empty database."""
    for table in TABLES:
        columns = tuple(table.columns)
        seed = [tuple(row.get(column.name) for column in columns) for row in table.info.get("seed", ())]
        for batch in target.bulk.batches(target.whole(table), columns):
            if any(row not in seed and not (table is META and row[0] in FIXED) for row in batch):
                return table.name
    return None


def refuse_unless_empty(target: Session) -> None:
    """Raise Conflict, which names the first table with rows, unless the database is empty."""
    name = first_with_rows(target)
    if name is not None:
        raise Conflict(f"The target has rows in {name}; it must be empty. Nothing was written.", constraint=name)


# Compares the rows of a table in two databases: both are read once, in the order of their keys.


@dataclass(frozen=True, slots=True)
class Group:
    """The rows with one key, more than one only where a key may be NULL, and what databases with the same row have in common."""

    key: list[object]
    rows: list[Row]
    texts: list[bytes]


def groups(table: Table, batches: Iterator[list[Row]], checksum: Checksum) -> Iterator[Group]:
    """The rows of batches that are ordered by their keys. The checksum grows by each batch."""
    columns, key = tuple(table.columns), key_columns(table)
    last: Group | None = None
    for batch in batches:
        texts = checksum.texts(batch)
        checksum.add_texts(texts)
        for row, text in zip(batch, texts, strict=True):
            found = key_in(row, columns, key)
            if last is not None and last.key == found:
                last.rows.append(row)
                last.texts.append(text)
                continue
            if last is not None:
                yield last
            last = Group(found, [row], [text])
    if last is not None:
        yield last


def differences(source: Iterator[Group], target: Iterator[Group]) -> Iterator[tuple[Group | None, Group | None]]:
    """The groups of one key that differ: of the source and of the target, None where there is none."""
    ours, theirs = next(source, None), next(target, None)
    while ours is not None or theirs is not None:
        if theirs is None or (ours is not None and comparable(ours.key) < comparable(theirs.key)):
            yield ours, None
            ours = next(source, None)
        elif ours is None or comparable(ours.key) > comparable(theirs.key):
            yield None, theirs
            theirs = next(target, None)
        else:
            if ours.texts != theirs.texts and sorted(ours.texts) != sorted(theirs.texts):
                yield ours, theirs
            ours, theirs = next(source, None), next(target, None)


def superfluous(source: Iterator[Sequence[object]], target: Iterator[Sequence[object]]) -> Iterator[Sequence[object]]:
    """The keys that only the target has. Both are ordered, and a key may come several times."""
    ours: Key | None = None
    for theirs in target:
        wanted = comparable(theirs)
        while ours is None or ours < wanted:
            found = next(source, None)
            if found is None:
                yield theirs
                break
            ours = comparable(found)
        else:
            if ours != wanted:
                yield theirs


# Copies blobs: those of a database into one that is rebuilt from its event log, and bodies that are outside of a database.

_ROWS = 200
_LINKS = Statement(select(part_blobs.c.part_id, part_blobs.c.sha256).order_by(part_blobs.c.part_id))
_THERE = Statement(select(parts.c.id).where(among_labels(parts.c.id, "ids")))
_F, _V = artifact_blobs.c, artifact_versions.c
_OF_ARTIFACTS = Statement(select(_F.artifact_id, _F.version, _F.sha256).order_by(_F.artifact_id, _F.version))
_VERSIONS = Statement(select(_V.artifact_id, _V.version).where(among_labels(_V.artifact_id, "ids")))
_NAME_OF_ARTIFACT = Statement(insert_missing(artifact_blobs, "artifact_id", "version"))
_ALL = Statement(select(blobs.c.sha256).order_by(blobs.c.sha256))
_OUTSIDE = Statement(select(blobs.c.sha256).where(blobs.c.outside.is_(true())).order_by(blobs.c.sha256))
_BLOB = Statement(select(blobs).where(blobs.c.sha256 == param("digest")))
_PIECES = Statement(select(pieces).where(pieces.c.sha256 == param("digest")).order_by(pieces.c.position))
_ADD = Statement(insert_missing(blobs, "sha256"))


def copy_blobs(source: UnitOfWork, target: UnitOfWork, *, unnamed: bool) -> None:
    """Copy the blobs that parts and artifacts in the target name, and let them name these; `unnamed`: all others, too."""
    for links in chunks(source, _LINKS, _ROWS):
        there = {id for (id,) in target.rows(_THERE, ids=[part_id for part_id, _ in links])}
        for part_id, digest in links:
            if part_id in there:
                _copy(source, target, digest)
                target.run(NAME_BLOB, named_by=part_id, sha256=digest)
    for rows in chunks(source, _OF_ARTIFACTS, _ROWS):
        versions = {tuple(row) for row in target.rows(_VERSIONS, ids=sorted({artifact_id for artifact_id, *_ in rows}))}
        for artifact_id, version, digest in rows:
            if (artifact_id, version) in versions:
                _copy(source, target, digest)
                target.run(_NAME_OF_ARTIFACT, artifact_id=artifact_id, version=version, sha256=digest)
    if unnamed:
        for digests in chunks(source, _ALL, _ROWS):
            for (digest,) in digests:
                _copy(source, target, digest)


def _copy(source: UnitOfWork, target: UnitOfWork, digest: str) -> None:
    row = source.row(_BLOB, digest=digest)
    if row is None or not target.run(_ADD, **dict(zip(blobs.columns.keys(), row, strict=True))):
        return
    for found in chunks(source, _PIECES, 1, digest=digest):
        for piece in found:
            target.run(ADD_PIECE, **dict(zip(pieces.columns.keys(), piece, strict=True)))


def copy_bodies(source: UnitOfWork, target: Runtime) -> int:
    """Copy bodies outside of the source's database to where the target keeps such, if it does; how many stay where they are."""
    there: BlobStore | None = target.blob_store
    if there is None:
        return sum(len(digests) for digests in chunks(source, _OUTSIDE, _ROWS))
    for digests in chunks(source, _OUTSIDE, _ROWS):
        for (digest,) in digests:
            if not there.exists(digest):
                there.put(digest, outside_of(source.runtime, digest).open(digest))
    return 0


_NO_LONGER_UNFINISHED = Statement(delete(META).where(META.c.key == UNFINISHED), silent=True)


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What was copied: the row count and the checksum of every table, by name, parents first.

    A checksum is 32 hex digits. Databases with equal rows have equal checksums, whatever their dialects.
    `left_out`: tables of the source that do not belong to persist and were not copied.
    `carried`: what persist does not know and the target has, too: values by table.column, rows by table.
    `left_unknown`: what was left on request, in the same form.
    `filled`: by table.column, how many values the target has where the source held nothing and the target has to hold something.
    `computed`: table.column of what the source computes. It was not copied nor compared: the target computes it, or lacks it.
    `bodies_outside`: how many bodies of blobs stay outside of both databases: the target has to be opened with the same `blobs`.
    """

    tables: dict[str, int]
    checksums: dict[str, str]
    left_out: tuple[str, ...] = ()
    filled: Mapping[str, int] = field(default_factory=dict)
    carried: Mapping[str, int] = field(default_factory=dict)
    left_unknown: Mapping[str, int] = field(default_factory=dict)
    computed: tuple[str, ...] = ()
    bodies_outside: int = 0


def copy(
    source: Store,
    target: Store,
    *,
    progress: Progress | None = None,
    scopes: Mapping[str, str] | None = None,
    leave_unknown: bool = False,
) -> CopyReport:
    """Copy every row into an empty target, in one transaction, and read it back.

    `progress`: called with the table at hand and the steps of the whole copy; each row is two steps, written and read back.
    `scopes`: the run_id, instance_id or workspace_id for rows that belong to the source's file itself, if the file does not name
    it. `leave_unknown`: leave columns and tables `x_…` that persist does not know, which are carried otherwise. Raises Conflict
    if the target has rows, InvalidValue if the target is the source, for a value that cannot be stored, for rows whose scope is
    unknown, or for values of unknown columns that the target cannot have. Raises StoreCorrupt if the rows read back differ. After
    an error, nothing is written.
    """
    own = own_scopes(source.runtime.scopes, scopes)
    with session(source, writable=False) as reading:
        with session(target, writable=True) as writing:
            copied = _Copy(reading, writing, own, progress, leave_unknown=leave_unknown)
            tables, checksums = copied.run()
            carried = copied.unknown.counts
            left, filled = left_out(reading, carried), dict(reading.bulk.filled)
            computed, outside = computed_in(reading), copied.bodies_outside
            report = CopyReport(tables, checksums, left, filled, carried, copied.unknown.left, computed, outside)
        target.runtime.scopes.update(copied.taken)
        target.runtime.keep_log(copied.logs)
        target.runtime.strict = copied.strict
    return report


def left_out(reading: Session, carried: Mapping[str, int]) -> tuple[str, ...]:
    """The tables of a database that a copy leaves out: they are neither persist's nor a host's `x_…` that were carried."""
    ours = {table.name for table in TABLES} | {VERSION_TABLE}
    return tuple(sorted(reading.work.whole_tables.names() - ours - carried.keys()))


def own_scopes(said: Mapping[str, str], given: Mapping[str, str] | None) -> dict[str, str]:
    """Merge the owner ids that a file names with those that the caller gives. Raises InvalidValue if they differ."""
    own = dict(said)
    for scope, id in (given or {}).items():
        if scope not in OWN_SCOPES:
            raise InvalidValue("scopes", f"{shown(scope)} is none of {', '.join(OWN_SCOPES)}.")
        if not check_label(scope, id):
            raise InvalidValue(scope, "it is empty.")
        if own.setdefault(scope, id) != id:
            raise InvalidValue(scope, f"the file says it is that of {own[scope]!r}, not of {id!r}.")
    return own


class _Copy:
    def __init__(
        self, source: Session, target: Session, own: dict[str, str], progress: Progress | None, *, leave_unknown: bool
    ) -> None:
        self.source, self.target, self.own, self.progress = source, target, own, progress
        self.raw = source.bulk.one_file and target.bulk.one_file
        """Whether both stores are files: stored values are then copied unchanged, even unreadable ones."""
        self.taken = dict(own) if target.bulk.one_file else {}
        self.meta: list[Row] = []
        self.leave_unknown = leave_unknown
        self.done = self.steps = self.bodies_outside = 0

    def run(self) -> tuple[dict[str, int], dict[str, str]]:
        if self.source.bulk.identity() == self.target.bulk.identity():
            raise InvalidValue("target", "it is the source itself.")
        self.target.bulk.begin_loading(TABLES)
        self.target.work.run(_NO_LONGER_UNFINISHED)
        refuse_unless_empty(self.target)
        self.unknown = Carrying(unknown_in(self.source), self.target, leave=self.leave_unknown)
        self.unknown.fill_from(self.source.bulk.rows_of)
        self.unknown.make()
        sums: dict[Table, Checksum] = {}
        if self.progress is not None:
            self.steps = 2 * sum(rows_in(self.source, table) for table in TABLES if table is not META)
        for table in TABLES:
            if table is not META and table.info.get("seed"):
                self.target.bulk.clear(table)
            sums[table] = self._table(table)
        self.unknown.carry(all_rows(self.source, self.unknown.found, self._scoped))
        self.target.bulk.end_loading()
        self.logs, self.strict = guard(self.target, self.meta)
        for table in TABLES:
            self._check(table, sums[table])
        take_positions(self.target.work)  # the sequence goes on above the copied positions
        self.bodies_outside = copy_bodies(self.source.work, self.target.store.runtime)
        return {str(t.name): sums[t].rows for t in TABLES}, {str(t.name): str(sums[t]) for t in TABLES}

    def _table(self, table: Table) -> Checksum:
        columns = tuple(table.columns)
        checksum = Checksum(columns, self.own, raw=self.raw)

        def batches() -> Iterator[list[Row]]:
            for batch in self.source.bulk.batches(self.source.whole(table), columns, raw=self.raw):
                rows = self._translated(table, columns, batch)
                checksum.add(rows)
                yield rows
                self._tell(table, len(rows))

        self.target.bulk.load(table, columns, batches(), raw=self.raw)
        highest = self.source.bulk.highest(table)
        if highest is not None:
            self.target.bulk.go_on_after(table, highest)
        return checksum

    def _translated(self, table: Table, columns: Columns, rows: list[Row]) -> list[Row]:
        if table is META:
            self.meta += (kept := meta_rows(rows, one_file=self.target.bulk.one_file))
            return kept
        return self._scoped(columns, rows)

    def _scoped(self, columns: Columns, rows: list[Row]) -> list[Row]:
        return rows if self.target.bulk.one_file else with_scopes(columns, rows, self.own)

    def _check(self, table: Table, expected: Checksum) -> None:
        """Raise StoreCorrupt unless the target's rows are equal to those read from the source."""
        columns = tuple(table.columns)
        found = Checksum(columns, self.own, raw=self.raw)
        for batch in self.target.bulk.batches(self.target.whole(table), columns, raw=self.raw):
            found.add([row for row in batch if row[0] not in FIXED] if table is META else batch)
            self._tell(table, len(batch))
        if (found.rows, str(found)) != (expected.rows, str(expected)):
            what = f"{found.rows} rows instead of {expected.rows}" if found.rows != expected.rows else "other values"
            raise StoreCorrupt(table.name, f"the target gives back {what} than were written. Nothing was kept.")

    def _tell(self, table: Table, rows: int) -> None:
        if self.progress is not None and table is not META:
            self.done += rows
            self.progress(str(table.name), self.done, self.steps)


def with_scopes(columns: Columns, rows: list[Row], own: Mapping[str, str]) -> list[Row]:
    """Replace empty scope columns, which stand for the file's owner, by its id. Raises InvalidValue if that is unknown."""
    for index, column in enumerate(columns):
        scope = scope_of(column)
        if scope is not None and any(row[index] == OWN for row in rows):
            id = _known(column, scope, own)
            rows = [(*row[:index], row[index] or id, *row[index + 1 :]) for row in rows]
    return rows


def _known(column: Column[Any], scope: str, own: Mapping[str, str]) -> str:
    if scope in own:
        return own[scope]
    raise InvalidValue(
        f"{column.table.name}.{scope}",
        f"rows belong to the file itself, and it does not say whose it is. Say it: scopes={{'{scope}': …}}"
        f" (--{scope.replace('_', '-')}). Nothing was written.",
    )
