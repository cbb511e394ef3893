"""What domains declare for pruning by age: find candidates, then check and delete them, batch by batch."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Select, Table, Update, and_, func, literal, select, true
from sqlalchemy.sql.elements import ColumnElement

from persist.db.expressions.keyset import behind
from persist.db.operations import bounded_deletion
from persist.db.schema.column_types import Label
from persist.db.statements.prepared import Row
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.unreadable.conditions import bindable_rows
from persist.db.unreadable.excerpts import left_out

MOST_CANDIDATES = 20_000
"""The maximum number of candidates that one `Pruning.next_candidates` returns."""
BATCH = 500
"""The number of candidates per transaction, if their dependent rows are few."""
ROWS = 250
"""The number of dependent rows that one transaction deletes at most."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The condition for deletion: older than the instant `before`, and not among the newest `keep` rows."""

    before: datetime
    keep: int = 0
    trial: bool = False
    """Whether all that is deleted comes back, so that nothing outside of the database may be deleted."""
    begun: bool = False
    """Whether another transaction has deleted a part of the first candidate."""


@dataclass(slots=True)
class Removed:
    """The result of a deletion."""

    rows: Counter[str] = field(default_factory=Counter)
    """How many rows were deleted, by table name."""
    files: list[str] = field(default_factory=list)
    """Files to which the deleted rows referred; the files themselves are not deleted."""
    followers: list[Any] = field(default_factory=list)
    """Keys of rows that may be deleted next, because a deleted row referred to them; see `Pruning.follow`."""
    rest: Sequence[Row] = ()
    """The candidates that further transactions delete, because the rows that depend on them were too many for one."""
    begun: bool = False
    """Whether of the first candidate in `rest` a part is deleted."""
    kept: Counter[str] = field(default_factory=Counter)
    """The number of other programs' rows that keep candidates, by name."""

    def add(self, other: "Removed") -> None:
        self.rows += other.rows
        self.files += other.files
        self.kept += other.kept


class Pruning(ABC):
    """Prunes one kind of row by age; `table` has one row for each candidate."""

    table: Table
    batch: int = BATCH
    rows: int = ROWS
    follows: Table | None = None
    """The table of the followers."""

    @abstractmethod
    def next_candidates(self, work: UnitOfWork, cut: Cut, after: Row | None) -> list[Row]:
        """Up to MOST_CANDIDATES rows in a fixed order, `after` the last one given, without unreadable and unbindable rows."""

    @abstractmethod
    def remove(self, work: UnitOfWork, cut: Cut, found: Sequence[Row]) -> Removed:
        """Delete candidates with their dependent rows, as many as fit. One with too many of these loses some of them."""

    def condition_of(self, candidate: Row) -> bounded_deletion.Condition:
        """The condition of the row of a candidate: the key follows the columns that order candidates, or is alone."""
        key = [*self.table.primary_key.columns]
        values = candidate[1 : len(key) + 1] if len(candidate) > len(key) else candidate
        return and_(*(column == literal(value, column.type) for column, value in zip(key, values, strict=True)))

    def prepare(self, work: UnitOfWork) -> None:  # noqa: B027  # a pruning whose statements are kept compiled has nothing to do
        """Compile the statements of `remove` by running them for no row, so that no lock is held while they are compiled."""

    def batches(self, found: Sequence[Row]) -> Iterator[Sequence[Row]]:
        """The candidates, split into the batches that are deleted in one transaction each."""
        for start in range(0, len(found), self.batch):
            yield found[start : start + self.batch]

    def tally(self, work: UnitOfWork, cut: Cut, earlier: Sequence["Pruning"]) -> Removed | None:
        """What a prune would remove after the `earlier` ones, counted without a lock. None: only a trial can tell."""
        return None

    def follow(self, work: UnitOfWork, followers: Sequence[Any]) -> Removed:
        """Delete those followers that no row refers to any more. After an interrupted prune, the next one finds them."""
        return Removed()


@dataclass(frozen=True, slots=True)
class Orphaned:
    """Rows go once no row of another pruning owns them. `without(among)`: the condition that no owner in `among` is left."""

    owners: "AgedRows"
    without: Callable[[bounded_deletion.Condition], bounded_deletion.Condition]

    def condition(self, cut: Cut, earlier: Collection[Pruning]) -> bounded_deletion.Condition:
        """The condition once the `earlier` prunings have removed their rows."""
        return self.without(self.owners.staying(cut) if self.owners in earlier else true())


class AgedRows(Pruning):
    """Prunes rows whose instant in the column `at` is old, after their dependent rows in other tables.

    key        the columns that identify a row
    only       the condition of rows that count, also for `Cut.keep`
    may_go     the condition of counted rows that may be deleted, such as finished runs
    per        `Cut.keep` newest rows are kept for each value of this column
    order      the columns that say which row is newer, by default the instant and the key
    min_kept   the number of newest rows that are kept, even if `Cut.keep` is less
    below      the dependent rows, which are deleted first
    units      dependent rows that are deleted whole, with the rows below, if an item has too many for one transaction
    mark       the update of a row when a first transaction has deleted some of its dependent rows
    orphaned   a row goes only if no row of another pruning owns it
    spared     returns the (locked) keys that must stay after all
    files      returns the files that the rows name, for `Removed.files`
    """

    def __init__(
        self,
        table: Table,
        at: ColumnElement[Any],
        *key: ColumnElement[Any],
        only: bounded_deletion.Condition | None = None,
        may_go: bounded_deletion.Condition | None = None,
        per: ColumnElement[Any] | None = None,
        order: Sequence[ColumnElement[Any]] = (),
        min_kept: int = 0,
        below: Sequence[bounded_deletion.DependentRows] = (),
        units: bounded_deletion.Units | None = None,
        mark: Update | None = None,
        orphaned: Orphaned | None = None,
        spared: Callable[[UnitOfWork, bounded_deletion.Ids], Collection[Any]] | None = None,
        files: Callable[[UnitOfWork, bounded_deletion.Ids], list[str]] | None = None,
    ) -> None:
        self.table, self._at, self._key = table, at, key
        self._labels = {place: one for place, one in enumerate(key, 1) if isinstance(one, Column) and isinstance(one.type, Label)}
        self._only, self._per, self._min_kept = only, per, min_kept
        self._orphaned = orphaned
        self._order = order or (at, *key)
        self._may_go = [condition for condition in (only, may_go) if condition is not None]
        self._below, self._units, self._mark, self._spared, self._files = below, units, mark, spared, files

    def next_candidates(self, work: UnitOfWork, cut: Cut, after: Row | None) -> list[Row]:
        return self._next_candidates(work, cut, after, ())

    def _next_candidates(self, work: UnitOfWork, cut: Cut, after: Row | None, earlier: Collection[Pruning]) -> list[Row]:
        place = (self._at, *self._key)
        query = self.candidates(cut, earlier).with_only_columns(*place).order_by(*place).limit(MOST_CANDIDATES)
        if after is not None:
            last = [literal(value, column.type) for value, column in zip(after, place, strict=True)]
            query = query.where(behind(place, last))
        return bindable_rows(work.found(query, unreadable=OnUnreadable.LEAVE_OUT), self._labels)

    def reads_all(self, work: UnitOfWork, cut: Cut) -> bool:
        """Whether `next_candidates` leaves none of the `candidates` out."""
        found = self.next_candidates(work, cut, None)
        while found and not left_out(found):
            found = self.next_candidates(work, cut, found[-1])
        return not left_out(found)

    def candidates(self, cut: Cut, earlier: Collection[Pruning] = ()) -> Select[Any]:
        """SELECT of the keys of all rows that may go, but for those that `spared` knows, after the `earlier` prunings."""
        query = select(*self._key).where(*self._goes(cut, earlier))
        keep = max(cut.keep, self._min_kept)
        return query.where(self._identity.not_in(self._newest(keep))) if keep else query

    def staying(self, cut: Cut) -> bounded_deletion.Condition:
        return self._identity.not_in(self.candidates(cut))  # type: ignore[no-any-return]  # SQLAlchemy's tuples are untyped

    def _goes(self, cut: Cut, earlier: Collection[Pruning] = ()) -> list[bounded_deletion.Condition]:
        conditions = [self._at < cut.before, *self._may_go]
        return conditions if self._orphaned is None else [*conditions, self._orphaned.condition(cut, earlier)]

    def tally(self, work: UnitOfWork, cut: Cut, earlier: Sequence[Pruning]) -> Removed | None:
        if self._orphaned is not None and self._orphaned.owners in earlier and not self._orphaned.owners.reads_all(work, cut):
            return None
        counted = Removed()
        last: Row | None = None
        while found := self._next_candidates(work, cut, last, earlier):
            for some in self.batches(found):
                ids = [row[1] for row in some]
                spared = () if self._spared is None else self._spared(work, ids)
                ids = [id for id in ids if id not in spared]
                counted.rows[self.table.name] += len(ids)
                counted.rows += bounded_deletion.count_below(work, self._below, ids)
                counted.files += [] if self._files is None else self._files(work, ids)
            last = found[-1]
        return counted

    def remove(self, work: UnitOfWork, cut: Cut, found: Sequence[Row]) -> Removed:
        removed = Removed()
        # Rows that another transaction has locked are in use, and are left for the next prune.
        locked = select(*self._key).where(self._among([row[1:] for row in found]), *self._goes(cut))
        rows = work.found(locked.with_for_update(skip_locked=True), unreadable=OnUnreadable.LEAVE_OUT)
        if self._spared is not None and rows:
            spared = self._spared(work, [row[0] for row in rows])
            rows = [row for row in rows if row[0] not in spared]
        if not rows:
            return removed
        begun = cut.begun and tuple(rows[0]) == tuple(found[0][1:])
        whole = 0 if begun else bounded_deletion.fitting(work, self._below, [row[0] for row in rows], self.rows)
        going, ids = rows[:whole], [row[0] for row in rows[: whole or 1]]
        if self._files is not None and not begun:
            removed.files += self._files(work, ids)
        if not going:
            removed.rows += bounded_deletion.delete_some(work, self._below, self._units, ids[0], self.rows)
            if removed.rows.total():
                removed.begun = True
                if self._mark is not None:
                    work.change(self._mark.where(self._among(rows[:1])))
            else:  # rows that cannot be told apart: all of them at once
                going, whole = rows[:1], 1
        if going:
            removed.rows += bounded_deletion.delete_below(work, self._below, ids)
            removed.rows[self.table.name] += bounded_deletion.delete_rows(work, self.table, self._among(going))
        candidates = {tuple(row[1:]): row for row in found}
        removed.rest = [candidates[tuple(row)] for row in rows[whole:]]
        return removed

    def prepare(self, work: UnitOfWork) -> None:
        none: list[Any] = [None]
        if self._spared is not None:
            self._spared(work, none)
        if self._units is not None:
            work.found(self._units.first(None, 1))
        for below in (self._below, () if self._units is None else self._units.below):
            bounded_deletion.fitting(work, below, none, self.rows)
            bounded_deletion.delete_below(work, below, none)
        bounded_deletion.delete_rows(work, self.table, self._among([]))
        if self._units is not None:
            bounded_deletion.delete_rows(work, self._units.table, self._units.key.in_([]))

    @property
    def _identity(self) -> Any:
        return bounded_deletion.row_value(self._key)

    def _among(self, keys: Sequence[Row]) -> bounded_deletion.Condition:
        condition: bounded_deletion.Condition = self._identity.in_(
            [key[0] for key in keys] if len(self._key) == 1 else list(keys)
        )
        return condition

    def _newest(self, keep: int) -> Any:
        """A query for the keys of the newest `keep` rows (per `per`), among rows whose instant is not NULL."""
        newest_first = [column.desc() for column in self._order]
        place = func.row_number().over(partition_by=self._per, order_by=newest_first).label("place")
        counted = [self._at.is_not(None)] + ([] if self._only is None else [self._only])
        ranked = select(*self._key, place).where(and_(*counted)).subquery()
        return select(*(ranked.c[column.name] for column in self._key)).where(ranked.c.place <= keep)
