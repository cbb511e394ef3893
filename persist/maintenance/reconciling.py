"""Makes the rows of a target those of one snapshot of its source, in bounded transactions, and reports what they are."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from itertools import chain
from typing import TypeVar

from sqlalchemy import Table

from persist.db.dialects.bulk import Columns, Row
from persist.db.statements.prepared import CompiledStatement
from persist.db.statements.schema_version import COPY
from persist.errors import Conflict, StoreCorrupt
from persist.maintenance.checksums import Checksum
from persist.maintenance.comparing import Group, differences, groups, superfluous
from persist.maintenance.copying import with_scopes
from persist.maintenance.table_keys import key_columns, key_in, owned_key, owner, whole
from persist.maintenance.transactions import Session

T = TypeVar("T")

Writing = Callable[[], AbstractContextManager[Session]]
"""Opens one of the bounded transactions on the target."""
Reading = Callable[[], AbstractContextManager[Session]]
"""Opens a snapshot of the target, on another connection than that of the writes."""
Told = Callable[[Table, int], object]
"""Called with a table and the number of its rows that were compared."""

_MOST_WAITING = 10


class Reconciling:
    """Compares a target with one snapshot of its source, table by table, and mends what differs.

    `rows`: how many rows one transaction takes at most.
    """

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

    def _batches(self, of: Session, compiled: CompiledStatement, columns: Columns, scope: str | None) -> Iterator[list[Row]]:
        found = of.bulk.batches(compiled, columns, owner(scope, self.own), raw=self.raw)
        return self._cursors.enter_context(closing(found))

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

    def _rows(self, of: Session, table: Table) -> Iterator[list[Row]]:
        columns = tuple(table.columns)
        scope = self._translated(of, table)
        compiled = of.store.runtime.prepared[whole(table, scope)]
        for batch in self._batches(of, compiled, columns, scope):
            yield with_scopes(columns, batch, self.own) if of is self.source and not self.keeps_scopes else batch

    def _keys(self, of: Session, table: Table) -> Iterator[list[object]]:
        columns = key_columns(table)
        scope = self._translated(of, table)
        compiled = of.store.runtime.prepared[whole(table, scope, keys_only=True)]
        for batch in self._batches(of, compiled, columns, scope):
            rows = with_scopes(columns, batch, self.own) if of is self.source and not self.keeps_scopes else batch
            yield from (key_in(row, columns, columns) for row in rows)

    def _translated(self, of: Session, table: Table) -> str | None:
        return owned_key(table, self.own) if of is self.source and of.bulk.one_file and not self.keeps_scopes else None


def settle(found: Iterator[T], rows: int, write: Callable[[Sequence[T]], None]) -> None:
    """Write what is found, up to `rows` at a time. What the target refuses waits until the rest has been written.

    Raises the last Conflict when nothing of what waits can be written, or when too much of it waits.
    """
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
