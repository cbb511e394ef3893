"""Copies a store in bounded transactions, so that a copy that takes days goes on where it was interrupted."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from sqlalchemy import Table, delete, insert, select, update

from persist.blobs.body_stores import Bodies
from persist.db.dialects.backends import dialect_for
from persist.db.dialects.bulk import Columns, Row
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.statements.prepared import Statement, param
from persist.db.statements.schema_version import COPY, COPYING, HEAD
from persist.db.values.arguments import Progress
from persist.errors import Conflict, InvalidValue, NotFound
from persist.events.switching import take_positions
from persist.lazy_imports import lazy_module
from persist.maintenance import copying
from persist.maintenance.rebuilding import Reconciling
from persist.maintenance.table_keys import after, first_page, key_in, next_page, page_columns
from persist.maintenance.transactions import TABLES, Session, rows_in, session
from persist.maintenance.unknown_columns import Carrying, all_rows, computed_in, unknown_in
from persist.settings import current_settings
from persist.store.store import Store

if TYPE_CHECKING:
    from persist.schema import migrate
else:
    migrate = lazy_module("persist.schema.migrate")


# What a resumable copy notes in the `_meta` of its target: whose copy it is, and how far it has come.

META = table_of(Meta)
_IS_MARK, _IS_VERSION = META.c.key == COPY, META.c.key == "schema_version"
_READ = Statement(select(META.c.value).where(_IS_MARK))
_BEGIN = Statement(insert(META).values(key=COPY, value=param("noted")))
_GO_ON = Statement(update(META).where(_IS_MARK, META.c.value == param("before")).values(value=param("noted")))
_END = Statement(delete(META).where(_IS_MARK, META.c.value == param("before")))
_NOTE_VERSION = Statement(update(META).where(_IS_VERSION).values(value=param("version")))


@dataclass(frozen=True, slots=True)
class Mark:
    """The state of a resumable copy.

    source    the source, as in a shell command
    identity  tells the source from other databases, also after a restart of its server
    revision  the schema revision of both
    scopes    the ids of the source file's owners
    rule      "last snapshot": rows are read in many snapshots; the target ends as equal to the one that it is compared with
    process   a random value for the process that copies: another one that goes on replaces it
    table     the table whose rows are being copied; None once all were, and the databases are compared
    after     the key of the last row of that table that was copied; None before the first
    """

    source: str
    identity: list[Any]
    revision: str
    scopes: dict[str, str]
    rule: str
    process: str
    table: str | None
    after: list[Any] | None = None

    def text(self) -> str:
        return orjson.dumps({name: getattr(self, name) for name in self.__slots__}, default=_bytes).decode()


def first_mark(source: Session, scopes: Mapping[str, str], table: str) -> Mark:
    """The mark of a copy that begins."""
    words = source.store.runtime.dialect.tables.arguments("--source-schema")
    identity = list(source.bulk.lasting_identity())
    return Mark(words, identity, HEAD, dict(scopes), "last snapshot", secrets.token_hex(8), table)


def read_mark(target: Session) -> Mark | None:
    """The mark in the target; None if no copy is under way."""
    row = target.work.row(_READ)
    if row is None:
        return None
    fields = orjson.loads(row[0])
    if fields["after"] is not None:
        fields["after"] = [bytes.fromhex(one["bytes"]) if isinstance(one, dict) else one for one in fields["after"]]
    return Mark(**fields)


def begin(target: Session, mark: Mark) -> None:
    """Note that a copy begins: from now on the target is no store that can be opened."""
    target.work.run(_BEGIN, noted=mark.text())
    target.work.run(_NOTE_VERSION, version=COPYING)


def take_over(target: Session, found: Mark, asked: Mark) -> Mark:
    """Continue the copy that was found. Raises InvalidValue unless it is the copy that the caller asks for."""
    if found.identity != asked.identity:
        raise InvalidValue("source", f"the copy under way is one of {found.source}; continue that one, or empty the target.")
    if found.revision != asked.revision:
        reason = (
            f"the copy was begun at revision {found.revision}, and this version has {asked.revision}; empty the target first."
        )
        raise InvalidValue("target", reason)
    for scope, id in asked.scopes.items():
        if found.scopes.get(scope, id) != id:
            raise InvalidValue(
                scope, f"the copy was begun as that of {found.scopes[scope]!r}, not of {id!r}; or empty the target."
            )
    return go_on(target, found, replace(found, process=asked.process, scopes={**found.scopes, **asked.scopes}))


def go_on(target: Session, mark: Mark, next: Mark) -> Mark:
    """Replace the mark, first in each transaction of the copy. Raises Conflict if another process has replaced it."""
    _expect(target.work.run(_GO_ON, before=mark.text(), noted=next.text()))
    return next


def end(target: Session, mark: Mark, rows: list[Row]) -> None:
    """Remove the mark and add the rows of the source's `_meta`: the target is a store now."""
    _expect(target.work.run(_END, before=mark.text()))
    target.work.run(_NOTE_VERSION, version=HEAD)
    target.bulk.load(META, tuple(META.columns), [rows])


def _expect(changed: int) -> None:
    if not changed:
        raise Conflict("Another process has gone on with this copy; this one has stopped.", constraint=COPY)


def _bytes(value: Any) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    raise TypeError(value)


COPIED = tuple(table for table in TABLES if table is not META)
_ROWS = 1000
_PAGES = 16
"""How many transactions on the target may share one snapshot of the source, which is not kept open for days."""


def copy_resumably(
    source: Store,
    target_url: str | Path,
    *,
    schema: str | None = None,
    blobs: "Bodies | None" = None,
    rows: int = _ROWS,
    progress: Progress | None = None,
    scopes: Mapping[str, str] | None = None,
    leave_unknown: bool = False,
) -> copying.CopyReport:
    """Copy every row into an empty database in transactions of at most `rows` rows; the same call goes on after an interruption.

    The database gets tables if it has none. Until the copy is complete, opening it raises CopyUnfinished. First the rows are
    copied table by table, parents first, while others may write to the source. Then the target is compared with one snapshot of
    the source, and what was added, changed or deleted since is copied too. The report is that of the snapshot.

    `scopes`, `progress`, `leave_unknown` and `blobs` as for `copy` and `Store.open`. Raises Conflict if the target has rows and
    no copy is under way, if it refuses a row, or if another process has gone on with this copy. Raises InvalidValue if the target
    is the source or in memory, if the copy under way is that of another source, for a value that cannot be stored, or for what
    persist does not know and the target cannot have. StoreCorrupt: rows read back differ. After an error the copy can go on.
    """
    if rows < 1:
        raise InvalidValue("rows", "expected at least 1.")
    if not isinstance(target_url, str | Path):
        raise InvalidValue(
            "target_url", f"expected a URL or a Path, got {type(target_url).__name__}: it opens the target itself."
        )
    own = copying.own_scopes(source.runtime.scopes, scopes)
    _make(target_url, schema)
    with ExitStack() as stack:
        writer, reader = (stack.enter_context(_opened(target_url, schema, blobs)) for _ in range(2))
        return _ResumableCopy(source, writer, reader, own, rows, progress, leave_unknown=leave_unknown).run()


def _make(url: str | Path, schema: str | None) -> None:
    try:
        found = migrate.current(url, schema=schema)
    except NotFound:  # a new file; what else is not there fails when it is opened
        found = None
    if found is None:
        migrate.upgrade(url, schema=schema)


def _opened(url: str | Path, schema: str | None, blobs: "Bodies | None") -> Store:
    settings = current_settings()
    settings = settings if blobs is None else settings.model_copy(update={"blobs": blobs})
    dialect = dialect_for(url, settings, schema=schema)
    if dialect.one_file and dialect.path is None:
        dialect.connections.dispose()
        raise InvalidValue("target", "a database in memory does not outlive an interruption; use copy().")
    return Store.on_dialect(dialect, settings, migrate=False, copied_into=True)


class _ResumableCopy:
    def __init__(
        self,
        source: Store,
        writer: Store,
        reader: Store,
        own: Mapping[str, str],
        rows: int,
        progress: Progress | None,
        *,
        leave_unknown: bool,
    ) -> None:
        self.source, self.writer, self.reader = source, writer, reader
        self.own, self.rows, self.progress, self.leave_unknown = own, rows, progress, leave_unknown
        self.one_file = writer.runtime.dialect.one_file
        self.raw = self.one_file and source.runtime.dialect.one_file
        self.totals: dict[Table, int] = {}

    def run(self) -> copying.CopyReport:
        self.mark = self._begun()
        self._count()
        names = [table.name for table in COPIED]
        if self.mark.table is not None:
            for table in COPIED[names.index(self.mark.table) :]:
                self._load(table)
            self._move(replace(self.mark, table=None, after=None))
        return self._reconciled()

    # -- the mark

    def _begun(self) -> Mark:
        with session(self.source, writable=False) as reading, session(self.writer, writable=True, checked=False) as target:
            if reading.bulk.identity() == target.bulk.identity():
                raise InvalidValue("target", "it is the source itself.")
            unknown = Carrying(unknown_in(reading), target, leave=self.leave_unknown)
            unknown.fill_from(reading.bulk.rows_of)  # what is refused is refused before days of copying
            asked = first_mark(reading, self.own, COPIED[0].name)
            found = read_mark(target)
            if found is not None:
                mark = take_over(target, found, asked)
                self.own = mark.scopes
                return mark
            target.bulk.begin_loading(TABLES)
            copying.refuse_unless_empty(target)
            for table in COPIED:
                if table.info.get("seed"):
                    target.bulk.clear(table)
            begin(target, asked)
            return asked

    @contextmanager
    def _writing(self, next: Mark | None = None) -> Iterator[Session]:
        """A transaction on the target that moves the mark, or only looks whether it is still that of this process."""
        with session(self.writer, writable=True, checked=False) as target:
            made = go_on(target, self.mark, next or self.mark)
            with target.work.whole_tables.without_row_guards():
                yield target
        self.mark = made

    def _move(self, next: Mark) -> None:
        with self._writing(next):
            pass

    # -- the rows, while others may write to the source

    def _load(self, table: Table) -> None:
        done = 0
        if self.mark.table != table.name:
            self._move(replace(self.mark, table=table.name, after=None))
        elif self.mark.after is not None and self.progress is not None:
            done = _rows_of(self.reader, table)
        most = count = self.rows * _PAGES
        while count == most:  # fewer are the last ones
            count = self._load_pages(table, done, most)
            done += count

    def _load_pages(self, table: Table, done: int, most: int) -> int:
        """Copy up to `most` rows of one snapshot of the source, those that follow the mark. Return their number."""
        columns, count = tuple(table.columns), 0
        with session(self.source, writable=False) as source:
            one_file = source.bulk.one_file
            key = page_columns(table, one_file=one_file)
            page = (first_page if self.mark.after is None else next_page)(table, one_file=one_file)
            values = {"limit": most, **after(self.mark.after or ())}
            compiled = source.store.runtime.prepared[page]
            with closing(source.bulk.batches(compiled, columns, values, raw=self.raw, rows=self.rows)) as batches:
                for batch in batches:
                    keys = [key_in(row, columns, key) for row in batch]
                    self._put(table, batch if self.one_file else copying.with_scopes(columns, batch, self.own), keys)
                    count += len(batch)
                    self._tell(table, done + count)
        return count

    def _put(self, table: Table, rows: Sequence[Row], keys: Sequence[list[object]]) -> None:
        """Add rows in one transaction. Those that the target refuses are left to the comparison: their parents may be newer."""
        moved = replace(self.mark, after=list(keys[-1]))
        try:
            with self._writing(moved) as target:
                target.bulk.load(table, tuple(table.columns), [list(rows)], raw=self.raw)
        except Conflict as error:
            if error.constraint == COPY:
                raise
            if len(rows) == 1:
                self._move(moved)
                return
            half = len(rows) // 2
            self._put(table, rows[:half], keys[:half])
            self._put(table, rows[half:], keys[half:])

    # -- the comparison, with one snapshot of the source

    def _reconciled(self) -> copying.CopyReport:
        with session(self.source, writable=False) as source:
            reading = partial(session, self.reader, writable=False, checked=False)
            work = Reconciling(source, reading, self._writing, self.own, self.rows, one_file=self.one_file)
            self._count()
            for table in reversed(COPIED):
                work.delete(table)
            sums = {table: work.mend(table, partial(self._tell, compared=True)) for table in COPIED}
            unknown = self._carry(source)
            outside = copying.copy_bodies(source.work, self.writer.runtime)
            sums[META] = self._end(source)
            left, computed = copying.left_out(source, unknown.counts), computed_in(source)
        tables = {str(table.name): sums[table].rows for table in TABLES}
        checksums = {str(table.name): str(sums[table]) for table in TABLES}
        return copying.CopyReport(tables, checksums, left, dict(work.filled), unknown.counts, unknown.left, computed, outside)

    def _carry(self, source: Session) -> Carrying:
        """Carry what persist does not know, in one transaction: most databases have none of it."""
        with self._writing() as target:
            done = "The rows are copied, nothing of this is: the same command goes on."
            unknown = Carrying(unknown_in(source), target, leave=self.leave_unknown, done=done)
            unknown.fill_from(source.bulk.rows_of)
            unknown.make(again=True)
            unknown.carry(all_rows(source, unknown.found, self._scoped))
        return unknown

    def _scoped(self, columns: Columns, rows: list[Row]) -> list[Row]:
        return rows if self.one_file else copying.with_scopes(columns, rows, self.own)

    def _end(self, source: Session) -> copying.Checksum:
        columns = tuple(META.columns)
        checksum = copying.Checksum(columns, self.own, raw=self.raw)
        found = [row for batch in source.bulk.batches(source.whole(META), columns, raw=self.raw) for row in batch]
        rows = copying.meta_rows(found, one_file=self.one_file)
        checksum.add(rows)
        with session(self.writer, writable=True, checked=False) as target:
            end(target, self.mark, rows)
            for table in COPIED:
                highest = source.bulk.highest(table)
                if highest is not None:
                    target.bulk.go_on_after(table, highest)
            target.work.whole_tables.guard_rows(TABLES)
            copying.guard(target, rows)
            take_positions(target.work)
        return checksum

    # -- progress

    def _count(self) -> None:
        if self.progress is not None:
            self.totals = {table: _rows_of(self.source, table) for table in COPIED}

    def _tell(self, table: Table, done: int, *, compared: bool = False) -> None:
        """Each row is two steps: copied and compared. Their number may have changed since they were counted."""
        if self.progress is not None:
            rows, whole = self.totals[table], sum(self.totals.values())
            before = sum(self.totals[other] for other in COPIED[: COPIED.index(table)])
            self.progress(str(table.name), before + min(done, rows) + whole * compared, 2 * whole)


def _rows_of(store: Store, table: Table) -> int:
    with session(store, writable=False, checked=False) as reading:
        return rows_in(reading, table)
