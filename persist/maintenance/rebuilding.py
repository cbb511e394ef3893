"""Rebuilds a database from its event log."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from itertools import chain
from typing import TypeVar

from sqlalchemy import ForeignKeyConstraint, Table, and_, bindparam, delete, exists, func, literal, not_, select, update

from persist.chat.storage.folding import fold_all
from persist.conversations.storage.progressions import fold_some
from persist.db.changes.journal import logged_tables, place_of
from persist.db.dialects.bulk import Row
from persist.db.schema.column_types import Int64, Label
from persist.db.statements.prepared import Statement
from persist.db.statements.schema_version import COPY
from persist.db.transactions.own_scope import claim_file
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import Conflict, NotFound, StoreCorrupt
from persist.events.first_snapshots import Progress, progress_of
from persist.events.models import event_heads, event_log
from persist.events.repository import Events, Replay
from persist.events.schemas import ALL, SNAPSHOT, SNAPSHOT_CONTINUED, Event
from persist.events.snapshots import write_snapshots
from persist.events.switching import is_on
from persist.maintenance.copying import Checksum, Group, copy_blobs, differences, groups, superfluous, with_scopes
from persist.maintenance.table_keys import key_columns, key_in, ordered_rows, owned_key, owner
from persist.maintenance.transactions import Session
from persist.schema.metadata import metadata
from persist.store.store import Store
from persist.store.transaction import work_of

# Makes the rows of a target those of one snapshot of its source, in bounded transactions, and reports what they are.

T = TypeVar("T")

Writing = Callable[[], AbstractContextManager[Session]]
"""Opens one of the bounded transactions on the target."""
Reading = Callable[[], AbstractContextManager[Session]]
"""Opens a snapshot of the target, on another connection than that of the writes."""
Told = Callable[[Table, int], object]
"""Called with a table and the number of its rows that were compared."""

_MOST_WAITING = 10


class Reconciling:
    """Compares a target with a snapshot of its source, table by table, and mends differences, `rows` per transaction."""

    def __init__(
        self, source: Session, reading: Reading, writing: Writing, own: Mapping[str, str], rows: int, *, one_file: bool
    ) -> None:
        self.source, self.reading, self.writing, self.own, self.rows = source, reading, writing, own, rows
        self._cursors = ExitStack()
        self.raw = source.bulk.one_file and one_file
        self.filled: dict[str, int] = {}
        """What the source held nothing of, and the target has a value for, by table.column."""
        self.keeps_scopes = one_file
        """Whether rows that belong to the file itself stay what they are: files have no other owners."""

    def delete(self, table: Table) -> None:
        """Delete the rows that only the target has. Tables come children first."""
        key = key_columns(table)
        with self._looking() as target:
            ours, theirs = self._keys(self.source, table), self._keys(target, table)
            settle(superfluous(ours, theirs), self.rows, lambda keys: self._write(lambda to: to.bulk.delete(table, key, keys)))

    def mend(self, table: Table, told: Told) -> Checksum:
        """Add the rows that only the source has, and change those that differ. Tables come parents first.

        Returns the checksum of the source's rows. Raises Conflict for a row that the target refuses, StoreCorrupt if rows that
        were written differ from those that are read back.
        """
        checksum, wrote = self._checksum(table), 0

        def counted(found: Iterator[tuple[Group | None, Group | None]]) -> Iterator[tuple[Group, bool]]:
            nonlocal wrote
            for ours, theirs in found:
                if ours is not None:  # what only the target has was deleted before
                    wrote += 1
                    yield ours, theirs is not None

        with self._looking() as target:
            found = differences(self._groups(self.source, table, checksum, told), self._target_groups(target, table))
            settle(counted(found), self.rows, lambda batch: self._write(lambda to: self._put(to, table, batch)))
        self.filled.update({name: count for name, count in self.source.bulk.filled.items() if name not in self.filled})
        if wrote:
            self._check(table)
        return checksum

    def _check(self, table: Table) -> None:
        with self._looking() as target:
            ours = self._groups(self.source, table, self._checksum(table), None)
            for _ in differences(ours, self._target_groups(target, table)):
                raise StoreCorrupt(table.name, "the target gives back other values than were written; the copy has not ended.")

    def _put(self, target: Session, table: Table, batch: Sequence[tuple[Group, bool]]) -> None:
        columns, key = tuple(table.columns), key_columns(table)
        changed = [group.rows[0] for group, there in batch if there and len(group.rows) == 1]
        replaced = [group for group, there in batch if there and len(group.rows) != 1]
        added = [group.rows for group, there in batch if not there]
        if changed:
            target.bulk.change(table, columns, changed, key, raw=self.raw)
        if replaced:
            target.bulk.delete(table, key, [group.key for group in replaced])
        rows = [*chain.from_iterable(added), *chain.from_iterable(group.rows for group in replaced)]
        if rows:
            target.bulk.load(table, columns, [rows], raw=self.raw)

    def _write(self, change: Callable[[Session], None]) -> None:
        with self.writing() as target:
            change(target)

    # -- reading

    @contextmanager
    def _looking(self) -> Iterator[Session]:
        """A snapshot of the target; at its end no cursor on either database stays open."""
        with self.reading() as target, ExitStack() as self._cursors:
            yield target

    def _checksum(self, table: Table) -> Checksum:
        return Checksum(tuple(table.columns), self.own, raw=self.raw)

    def _groups(self, source: Session, table: Table, checksum: Checksum, told: Told | None) -> Iterator[Group]:
        def batches() -> Iterator[list[Row]]:
            for batch in self._rows(source, table):
                yield batch
                if told is not None:
                    told(table, checksum.rows)

        return groups(table, batches(), checksum)

    def _target_groups(self, target: Session, table: Table) -> Iterator[Group]:
        return groups(table, self._rows(target, table), self._checksum(table))

    def _rows(self, of: Session, table: Table, *, keys_only: bool = False) -> Iterator[list[Row]]:
        columns = key_columns(table) if keys_only else tuple(table.columns)
        translates = of is self.source and not self.keeps_scopes
        scope = owned_key(table, self.own) if translates and of.bulk.one_file else None
        compiled = of.store.runtime.prepared[ordered_rows(table, scope, keys_only=keys_only)]
        found = of.bulk.batches(compiled, columns, owner(scope, self.own), raw=self.raw)
        for batch in self._cursors.enter_context(closing(found)):
            yield with_scopes(columns, batch, self.own) if translates else batch

    def _keys(self, of: Session, table: Table) -> Iterator[list[object]]:
        columns = key_columns(table)
        return (key_in(row, columns, columns) for rows in self._rows(of, table, keys_only=True) for row in rows)


def settle(found: Iterator[T], rows: int, write: Callable[[Sequence[T]], None]) -> None:
    """Write what is found, up to `rows` at a time; what is refused waits for the rest. Raises the last Conflict then."""
    waiting: list[T] = []
    refusal: Conflict | None = None

    def put(batch: Sequence[T]) -> None:
        nonlocal refusal
        try:
            write(batch)
        except Conflict as error:
            if error.constraint == COPY:
                raise
            if len(batch) == 1:
                waiting.extend(batch)
                refusal = error
                return
            half = len(batch) // 2
            put(batch[:half])
            put(batch[half:])

    def put_all(items: Iterator[T]) -> None:
        batch: list[T] = []
        for item in items:
            batch.append(item)
            if len(batch) == rows:
                put(batch)
                batch = []
            if refusal is not None and len(waiting) > _MOST_WAITING * rows:
                raise refusal
        if batch:
            put(batch)

    put_all(found)
    while waiting:
        again, before = list(waiting), len(waiting)
        waiting.clear()
        put_all(iter(again))
        if len(waiting) == before and refusal is not None:
            raise refusal


_BATCH = 500
_LOGGED = logged_tables(metadata.sorted_tables)
_E, _H = event_log.c, event_heads.c
_STARTS = Statement(select(_E.stream_id, func.max(_E.position)).where(_E.type == SNAPSHOT).group_by(_E.stream_id))
_TRIMMED = Statement(select(_H.stream_id).where(_H.first_seq > 1, _H.stream_id != ALL).order_by(_H.stream_id))
_BETWEEN = Statement(
    select(func.count()).where(
        _E.position > bindparam("since", type_=Int64()),
        _E.position <= bindparam("upto", type_=Int64()),
        _E.type.not_in([literal(SNAPSHOT), literal(SNAPSHOT_CONTINUED)]),
    )
)
_KNOWN = Statement(select(_H.stream_id).where(_H.stream_id == bindparam("stream", type_=Label())))


def rebuild(source: Store, target: Store, stream_id: str | None = None) -> None:
    """Create the rows of `target` from the event log of `source`: all rows, or the rows of a stream and its domain's shared rows.

    Everything happens in one transaction. If the target keeps an event log, single changes are not logged; a snapshot of each
    stream is logged at the end. Files of messages are in no log: they are copied from the source as they are. Raises Conflict if
    the target has rows, if a stream was trimmed, or if the stream's rows refer to rows of another stream, such as a conversation
    in the exchange. Raises NotFound for an unknown stream.
    """
    scopes = dict(target.runtime.scopes)
    try:
        _rebuild(source, target, stream_id)
    except BaseException:
        target.runtime.scopes.clear()
        target.runtime.scopes.update(scopes)
        raise


def _rebuild(source: Store, target: Store, stream_id: str | None) -> None:
    with source.read() as reading, target.begin() as writing:
        read, write = work_of(reading), work_of(writing)
        wanted = None if stream_id is None else _with_shared(read, stream_id)
        for (stream,) in read.rows(_TRIMMED):
            if wanted is None or stream in wanted:
                raise Conflict(f"Stream {stream!r} was trimmed: its log begins too late.", constraint="event_heads")
        logs = write.journal is not None
        if logs:
            write.whole_tables.lock(_LOGGED)  # keeps other writers' rows out of the rebuilt tables
            write.events.journal = None
        _refuse_rows(write)
        owners = {}
        for scope, owner in source.runtime.scopes.items():
            if write.runtime.dialect.one_file:
                claim_file(write, scope, owner)
                target.runtime.scopes[scope] = owner
            else:
                owners[scope] = owner
        progress = progress_of(read)
        if progress is not None and progress.upto is None:
            raise Conflict(
                f"The snapshots of {progress.streams:,} streams are written, and others are missing: run `persist events on`.",
                constraint="event_log",
            )
        window = _Window(read, write, progress)
        replay = Replay(write, {table.name: table for table in _LOGGED}, owners)
        starts = {row[0]: row[1] for row in read.rows(_STARTS)}
        after = 0
        with write.whole_tables.without_row_guards():
            while events := Events(read).read(ALL, after=after, limit=_BATCH):
                for event in events:
                    window.reach(event.position)
                    begun = window.is_open or event.position >= starts.get(event.stream_id, 0)
                    if (wanted is None or event.stream_id in wanted) and begun:
                        _apply(replay, event, write)
                after = events[-1].position
        window.close()
        copy_blobs(read, write, unnamed=wanted is None)
        write.advance_sequences(_LOGGED)
        fold_all(write)
        while fold_some(write):
            pass
        if logs and is_on(write):
            write_snapshots(write, _LOGGED)


class _Window:
    """The events between the switch of the log and its last snapshot, where others were written in between.

    An event of a stream may come before the stream's snapshot, and so before the rows that it refers to or deletes. So all of
    these events are applied, no foreign key is checked until the window ends, and what is left without a parent is deleted at
    the end, as it was in the source together with the parent.
    """

    def __init__(self, read: UnitOfWork, write: UnitOfWork, progress: Progress | None) -> None:
        self._write, self.is_open = write, False
        self._suspended: Sequence[str] = ()
        self._since = self._upto = 0
        if progress is not None and progress.upto is not None:
            others = read.row(_BETWEEN, since=progress.since, upto=progress.upto)
            if others is not None and others[0]:
                self._since, self._upto = progress.since, progress.upto

    def reach(self, position: int) -> None:
        """Begin or end the window, if the event at this position is behind where it does."""
        if not self.is_open and self._since < position <= self._upto:
            self.is_open = True
            self._suspended = self._write.whole_tables.suspend_references(_LOGGED)
        elif self.is_open and position > self._upto:
            self.close()

    def close(self) -> None:
        """End the window if it is open."""
        if not self.is_open:
            return
        self.is_open = False
        while any(self._adopt_or_delete(table, key) for table in _LOGGED for key in table.foreign_key_constraints):
            pass
        self._write.whole_tables.restore_references(self._suspended)

    def _adopt_or_delete(self, table: Table, key: ForeignKeyConstraint) -> bool:
        parent = key.referred_table.alias("parent")
        matches = [
            parent.c[element.column.name] == table.c[column.name]
            for column, element in zip(key.columns, key.elements, strict=True)
        ]
        without = and_(*(column.is_not(None) for column in key.columns), not_(exists().where(*matches).correlate(table)))
        if key.ondelete == "SET NULL":
            names = {column.name: None for column in key.columns if column.nullable}
            return bool(self._write.change(update(table).where(without).values(names)))
        return bool(self._write.change(delete(table).where(without)))


def _apply(replay: Replay, event: Event, write: UnitOfWork) -> None:
    try:
        replay.apply(event)
    except Exception as error:
        ours = write.runtime.translate(error)
        if isinstance(ours, Conflict):
            text = f"Event {event.position} leans on rows of a stream that is not rebuilt: {ours}"
            raise Conflict(text, constraint=ours.constraint) from error
        raise ours from error


def _with_shared(work: UnitOfWork, stream_id: str) -> set[str]:
    if work.row(_KNOWN, stream=stream_id) is None:
        raise NotFound("stream", stream_id)
    places = [place for table in _LOGGED if (place := place_of(table)) is not None]
    shared = {place.shared for place in places if place.prefix and stream_id.startswith(f"{place.prefix}:")}
    return {stream_id} | (shared or {place.shared for place in places if not place.prefix})


def _refuse_rows(work: UnitOfWork) -> None:
    for table in _LOGGED:
        seeded = len(table.info.get("seed", ()))
        count = work.select(select(func.count()).select_from(select(table.c[table.columns[0].name]).limit(seeded + 1).subquery()))
        if count.scalar_one() > seeded:
            raise Conflict(f"The target has rows in {table.name}; it must be empty.", constraint=table.name)
