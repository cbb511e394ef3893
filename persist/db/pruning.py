"""Pruning by age, in two steps: a look at what may go, then its removal in batches, where each row is looked at again.

The domains say here which of their rows may go and what goes with them; `persist.maintenance` runs it.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Table, and_, delete, func, literal, select, tuple_
from sqlalchemy.sql.elements import ColumnElement

from persist.db.hot import Row
from persist.db.spoilt import Spoilt
from persist.db.work import Work

LOOK = 20_000
"""How many rows one look finds, at most."""
BATCH = 500
"""How many of these one transaction removes, with what belongs to them."""

Condition = ColumnElement[bool]
Ids = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Cut:
    """What is old: older than an instant, and not among the newest `keep`."""

    before: datetime
    keep: int = 0


@dataclass(slots=True)
class Removed:
    """How many rows of each table went, files that they named and that stay where they are, and what may follow them now."""

    rows: Counter[str] = field(default_factory=Counter)
    files: list[str] = field(default_factory=list)
    followers: list[Any] = field(default_factory=list)

    def add(self, other: "Removed") -> None:
        """Count the other's too."""
        self.rows += other.rows
        self.files += other.files


class Pruning(ABC):
    """One kind of thing that may go by age; `table` has a row for each."""

    table: Table
    batch: int = BATCH

    @abstractmethod
    def look(self, work: Work, cut: Cut, after: Row | None) -> list[Row]:
        """Up to LOOK candidates, in an order that goes on after the last one of the look before."""

    @abstractmethod
    def remove(self, work: Work, cut: Cut, found: Sequence[Row]) -> Removed:
        """Remove those of the candidates that may go still, with what belongs to them."""

    def batches(self, found: Sequence[Row]) -> Iterator[Sequence[Row]]:
        """The candidates of a look, in the batches in which they go."""
        for start in range(0, len(found), self.batch):
            yield found[start : start + self.batch]

    def follow(self, work: Work, followers: Sequence[Any]) -> Removed:
        """Remove those of the followers that nothing holds any more; those of a killed prune are left to the next one."""
        return Removed()


@dataclass(frozen=True, slots=True)
class Below:
    """A table whose rows belong to those that go: which of them, by the keys of these."""

    table: Table
    of: Callable[[Ids], Condition]


class AgedRows(Pruning):
    """Rows that may go when the instant in the column `at` is old, with rows of other tables, these first.

    `key` identifies a row. Only rows that meet `about` are meant, also where the newest are counted, which is `per` owner, by the
    instants or by the columns of `order`; `least` of them stay whatever is asked. `may_go` says what is over. `spared` names the
    keys that stay after a closer look at rows that nobody else can change any more, `files` the files that rows to go name.
    """

    def __init__(
        self,
        table: Table,
        at: ColumnElement[Any],
        *key: ColumnElement[Any],
        about: Condition | None = None,
        may_go: Condition | None = None,
        per: ColumnElement[Any] | None = None,
        order: Sequence[ColumnElement[Any]] = (),
        least: int = 0,
        below: Sequence[Below] = (),
        spared: Callable[[Work, Ids], Collection[Any]] | None = None,
        files: Callable[[Work, Ids], list[str]] | None = None,
    ) -> None:
        self.table, self._at, self._key = table, at, key
        self._about, self._per, self._least = about, per, least
        self._order = order or (at, *key)
        self._may_go = [condition for condition in (about, may_go) if condition is not None]
        self._below, self._spared, self._files = below, spared, files

    def look(self, work: Work, cut: Cut, after: Row | None) -> list[Row]:
        place = (self._at, *self._key)
        query = select(*place).where(self._at < cut.before, *self._may_go).order_by(*place).limit(LOOK)
        keep = max(cut.keep, self._least)
        if keep:
            query = query.where(self._identity.not_in(self._newest(keep)))
        if after is not None:
            last = [literal(value, column.type) for value, column in zip(after, place, strict=True)]
            query = query.where(tuple_(*place) > tuple_(*last))
        return work.found(query, spoilt=Spoilt.LEAVE_OUT)

    def remove(self, work: Work, cut: Cut, found: Sequence[Row]) -> Removed:
        removed = Removed()
        # whatever somebody holds is in use, and is left for the next time
        locked = select(*self._key).where(self._among([row[1:] for row in found]), self._at < cut.before, *self._may_go)
        rows = work.found(locked.with_for_update(skip_locked=True), spoilt=Spoilt.LEAVE_OUT)
        if self._spared is not None and rows:
            spared = self._spared(work, [row[0] for row in rows])
            rows = [row for row in rows if row[0] not in spared]
        if not rows:
            return removed
        ids = [row[0] for row in rows]
        if self._files is not None:
            removed.files += self._files(work, ids)
        for below in self._below:
            removed.rows[below.table.name] += delete_rows(work, below.table, below.of(ids))
        removed.rows[self.table.name] += delete_rows(work, self.table, self._among(rows))
        return removed

    @property
    def _identity(self) -> Any:
        return self._key[0] if len(self._key) == 1 else tuple_(*self._key)

    def _among(self, keys: Sequence[Row]) -> Condition:
        condition: Condition = self._identity.in_([key[0] for key in keys] if len(self._key) == 1 else list(keys))
        return condition

    def _newest(self, keep: int) -> Any:
        """The keys of the newest, among rows that have an instant at all."""
        newest_first = [column.desc() for column in self._order]
        place = func.row_number().over(partition_by=self._per, order_by=newest_first).label("place")
        meant = [self._at.is_not(None)] + ([] if self._about is None else [self._about])
        ranked = select(*self._key, place).where(and_(*meant)).subquery()
        return select(*(ranked.c[column.name] for column in self._key)).where(ranked.c.place <= keep)


def delete_rows(work: Work, table: Table, *conditions: Condition) -> int:
    """Delete the rows that meet all of them; how many. In transactions that end with the first error."""
    return work.change(delete(table).where(*conditions))
