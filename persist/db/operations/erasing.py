"""What domains declare for erasing a person's data, which writes no events: the items that a name finds, and their rows."""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from json import dumps, loads
from types import MappingProxyType
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, Table, delete, literal, or_, select, tuple_, union

from persist.db.changes.journal import place_of
from persist.db.operations.bounded_deletion import Condition, delete_rows, row_value
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

# Each selector path is used twice: as a query of the tables, and as a check of rows that only the log or the quarantine has.
# So it finds the same items in all three.

Key = tuple[str, ...]
Values = Sequence[str]


@dataclass(frozen=True, slots=True)
class Equal:
    """Selects rows in which a column holds one of the values."""

    columns: tuple[ColumnElement[Any], ...]

    def __call__(self, values: Values) -> Condition:
        return or_(*(column.in_(values) for column in self.columns))

    def matches(self, row: Mapping[str, Any], values: Collection[str]) -> bool:
        """Whether a row of the event log or of the quarantine has one of the values."""
        return any(row.get(str(column.key)) in values for column in self.columns)


def equal(*columns: ColumnElement[Any]) -> Equal:
    """Select rows in which a column holds one of the values."""
    return Equal(columns)


@dataclass(frozen=True, slots=True)
class EqualTuple(Equal):
    """Selects rows whose columns together equal a value, which is a JSON list of texts, as `Lead` makes it."""

    def __call__(self, values: Values) -> Condition:
        return tuple_(*self.columns).in_([tuple(loads(value)) for value in values])

    def matches(self, row: Mapping[str, Any], values: Collection[str]) -> bool:
        return _named(row, self.columns) in values


By = Mapping[str, Equal]


@dataclass(frozen=True, slots=True)
class SelectorPath:
    """How a selector finds items: by rows with their `key`, in the tables, the event log and the quarantine alike."""

    selector: str
    by: Equal
    key: tuple[ColumnElement[Any], ...]

    @property
    def table(self) -> str:
        return _table_of(self.key)

    def key_in(self, cells: Mapping[str, Any], values: Collection[str]) -> Key | None:
        """The key of the item in a row of the table, if the selector finds the row."""
        return _cells(cells, self.key) if self.by.matches(cells, values) else None


Follow = Callable[[Iterable[str]], dict[str, list[str]]]
"""Maps names to the selectors that find items by them."""


@dataclass(frozen=True, slots=True)
class Lead:
    """A lead from an item to other kinds: rows with its key in `of` name them in `columns`; without these, the key does."""

    of: tuple[ColumnElement[Any], ...]
    follow: Follow
    columns: tuple[ColumnElement[Any], ...] = ()

    @property
    def table(self) -> str:
        return _table_of(self.of)

    def found(self, work: UnitOfWork, keys: Sequence[Key]) -> dict[str, list[str]]:
        """The names to which the items lead, by the selector that finds each name."""
        if not self.columns:
            return self.follow(id for (id,) in keys)
        (of,) = self.of
        there = [column.is_not(None) for column in self.columns]
        query = select(*self.columns).where(of.in_([id for (id,) in keys]), *there).distinct()
        return self.follow(_joined(tuple(row)) for row in work.found(query, unreadable=OnUnreadable.LEAVE_OUT))

    def names_in(self, cells: Mapping[str, Any], found: Container[Key]) -> dict[str, list[str]]:
        """The names in a row of the table, by the selector that finds them, if the row is of a found item."""
        named = _named(cells, self.columns) if self.columns and _cells(cells, self.of) in found else None
        return {} if named is None else self.follow([named])


def _table_of(columns: Sequence[ColumnElement[Any]]) -> str:
    (table,) = {column.table.name for column in columns if isinstance(column, Column)}
    return table


def _cells(cells: Mapping[str, Any], columns: Sequence[ColumnElement[Any]]) -> Key | None:
    found = tuple(cell for column in columns if isinstance(cell := cells.get(str(column.key)), str))
    return found if len(found) == len(columns) else None


def _named(cells: Mapping[str, Any], columns: Sequence[ColumnElement[Any]]) -> str | None:
    found = _cells(cells, columns)
    return None if found is None else _joined(found)


def _joined(names: Key) -> str:
    return names[0] if len(names) == 1 else dumps(names)


OWNER, SESSION, USER, NAMESPACE = "owner", "session_id", "user_id", "namespace"
SELECTORS = (OWNER, SESSION, USER, NAMESPACE)
"""The selectors that name a person."""
LINK, NAMED, LOGS, HISTORY = "link", "named", "logs", "history"
"""Selectors that no caller gives, but erased rows: the id of an erased session, for other domains; an id that another domain's
erased row gives as a session's; an id that names a session's log; the id of an erased history, for its runs."""
IDS = frozenset((SESSION, LINK, NAMED, LOGS, HISTORY))
"""The selectors of session ids, which may have logs on the disk."""
_UNIQUE = re.compile(r"[a-z]{3}_[0-9a-f]{14}[0-9A-Za-z]{12}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""Ids that nobody chose: those that persist mints, and UUIDs."""
SOME = 1000
"""The most rows that one transaction deletes, unless rows of one session can only go together."""

Elsewhere = Mapping[str, tuple[tuple[str, ...], Sequence[tuple[Any, ...]]]]


@dataclass(slots=True)
class Erased:
    """The result of one step of an erasure.

    rows       the number of rows, by table
    elsewhere  by table, the key columns and keys of erased rows whose events may be in shared streams
    kept       the number of found items that stay, by the reason
    more       forks that were made since the plan, which are erased next
    then       a change of remaining rows, logged like any change
    """

    rows: Counter[str] = field(default_factory=Counter)
    elsewhere: dict[str, tuple[tuple[str, ...], list[Key]]] = field(default_factory=dict)
    kept: Counter[str] = field(default_factory=Counter)
    more: list[Key] = field(default_factory=list)
    then: Callable[[UnitOfWork], object] | None = None


@dataclass(frozen=True, slots=True)
class Dependent:
    """Rows that go with an item, `together` or in parts: `of` makes their condition, `named_in` has the item's key."""

    table: Table
    of: Callable[[Sequence[Any]], Condition]
    together: bool = False
    named_in: ColumnElement[Any] | None = None


def holding(table: Table, column: str, *, together: bool = False) -> Dependent:
    """The rows of a table with the key of the item in a column. They find the item where its own row is gone."""
    return Dependent(table, table.c[column].in_, together, table.c[column])


class Erasable(ABC):
    """A kind of item that is erased whole. `table` has its rows, and is its name in plans."""

    table: Table
    key: tuple[str, ...]
    """The columns by which an item is known. Several rows may be one item."""
    by: By = MappingProxyType({})
    """The selectors of items by their own rows. A kind without them is erased last, unless other rows still name the item."""
    further: Sequence[SelectorPath] = ()
    """The paths to items through other tables, such as rows below; they also find an item without a row of its own."""
    leading: Sequence[Lead] = ()
    """The leads from an item to items of other kinds."""
    own_streams = True
    """Whether an item has its own stream of events."""
    derived_from: ColumnElement[Any] | None = None
    """The column with the key of the item that a fork was taken from: a fork is erased with it."""
    survivors: frozenset[str] = frozenset()
    """Tables whose rows may stay, because conversations of others show them, although their events are in erased streams."""
    rooted = True
    """Whether an item begins with a row that names its owner. An item that begins during an erasure stays."""
    has_files = False
    """Whether items may have files outside of the database, which `delete_files` deletes."""
    batch = 100
    """How many items one transaction erases."""

    def ways(self) -> Sequence[SelectorPath]:
        """Every path to items: by their own rows, and by rows below them that are left alone."""
        own = tuple(self.table.c[name] for name in self.key)
        return [*(SelectorPath(selector, by, own) for selector, by in self.by.items()), *self.further]

    def find(self, work: UnitOfWork, selector: str, values: Values) -> list[Key]:
        ways = [way for way in self.ways() if way.selector == selector]
        queries = [select(*way.key).where(way.by(values), *(column.is_not(None) for column in way.key)) for way in ways]
        return self._found(work, queries) if queries else []

    def keys(self, work: UnitOfWork, condition: Condition) -> list[Key]:
        return self._found(work, [select(*(self.table.c[name] for name in self.key)).where(condition)])

    def _found(self, work: UnitOfWork, queries: Sequence[Select[Any]]) -> list[Key]:
        query = select(union(*queries).subquery()) if len(queries) > 1 else queries[0].distinct()
        return [tuple(row) for row in work.found(query, unreadable=OnUnreadable.LEAVE_OUT)]

    def derived(self, work: UnitOfWork, keys: Sequence[Key]) -> list[Key]:
        """Items of this kind made from the given items, such as forks. Rows of the given items may be gone."""
        return [] if self.derived_from is None else self.keys(work, self.derived_from.in_([key[0] for key in keys]))

    def made_in(self, table: str, cells: Mapping[str, Any], found: Container[Key], notes: dict[str, str]) -> list[Key]:
        """The item of a row in the log or in the quarantine, if made from a `found` one. `notes`: facts for later rows."""
        if self.derived_from is None or table != self.table.name or (cells.get(str(self.derived_from.key)),) not in found:
            return []
        return [tuple(str(cells[name]) for name in self.key if isinstance(cells.get(name), str))]

    def named_alone(self, work: UnitOfWork, keys: Sequence[Key]) -> dict[str, list[Key]]:
        """Keys, by kind, of items that only the given items may name, such as system prompts. The erasure checks it."""
        return {}

    def mentioned(self, change: Mapping[str, Any]) -> dict[str, list[Key]]:
        """Keys as those of `named_alone` in a logged change of an item, whose rows may be deleted since."""
        return {}

    def written_again(self, work: UnitOfWork, keys: Sequence[Key], elsewhere: Elsewhere) -> Sequence[Key]:
        """Erased items that have rows again, from writers during the erasure. `elsewhere`: as in Erased."""
        return self.find(work, SESSION, [id for (id,) in keys]) if len(self.key) == 1 else []

    def check(self, work: UnitOfWork, keys: Sequence[Key]) -> None:
        """Raise a PersistError, before anything is erased, if these items cannot be erased."""
        return

    def streams(self, keys: Sequence[Key]) -> list[str]:
        """The streams of events that belong to these items alone."""
        rule = place_of(self.table)
        if not self.own_streams or rule is None or rule.column not in self.key:
            return []
        at = self.key.index(rule.column)
        return sorted({rule.name(key[at]) for key in keys})

    def erase_some(self, work: UnitOfWork, keys: Sequence[Key], at: int) -> tuple[Counter[str], int | None]:
        """Delete up to SOME dependent rows, of table number `at` and later; the next number, or None before the last step."""
        return Counter(), None

    @abstractmethod
    def erase(self, work: UnitOfWork, keys: Sequence[Key]) -> Erased:
        """Delete the items with their remaining rows, in one transaction."""

    def delete_files(self, work: UnitOfWork, keys: Sequence[Key]) -> None:
        """Delete the items' files outside of the database, in a transaction after the deletion of their rows."""
        return


class ErasableRows(Erasable):
    """Items with a row in one table and dependent rows in others, which go first."""

    def __init__(
        self,
        table: Table,
        key: tuple[str, ...],
        by: By,
        below: Sequence[Dependent] = (),
        *,
        further: Sequence[SelectorPath] = (),
        leading: Sequence[Lead] = (),
        own_streams: bool = True,
        rooted: bool = True,
    ) -> None:
        self.table, self.key, self.by, self.own_streams, self.rooted = table, key, by, own_streams, rooted
        holding = [one.named_in for one in below if one.named_in is not None] if len(key) == 1 and SESSION in by else []
        self.further, self.leading = [*(SelectorPath(SESSION, equal(column), (column,)) for column in holding), *further], leading
        self._below = below

    def written_again(self, work: UnitOfWork, keys: Sequence[Key], elsewhere: Elsewhere) -> Sequence[Key]:
        ids = self._ids(keys)
        places = [(self.table, self._these(keys)), *((below.table, below.of(ids)) for below in self._below)]
        some = (select(literal(1).label("one")).select_from(table).where(condition).limit(1) for table, condition in places)
        return keys if any(work.found(query) for query in some) else ()

    def erase_some(self, work: UnitOfWork, keys: Sequence[Key], at: int) -> tuple[Counter[str], int | None]:
        ids = self._ids(keys)
        for number, below in enumerate(self._below[at:], at):
            if not below.together and (gone := delete_some(work, below.table, below.of(ids))):
                return Counter({below.table.name: gone}), number if gone == SOME else number + 1
        return Counter(), None

    def erase(self, work: UnitOfWork, keys: Sequence[Key]) -> Erased:
        erased, ids = Erased(), self._ids(keys)
        # from here on no other transaction adds a row that would refer to these
        columns = [self.table.c[name] for name in self.key]
        held = select(*columns).where(self._these(keys)).order_by(*columns).with_for_update()
        work.found(held, unreadable=OnUnreadable.LEAVE_OUT)
        for below in self._below:
            erased.rows[below.table.name] += delete_rows(work, below.table, below.of(ids))
        erased.rows[self.table.name] += delete_rows(work, self.table, self._these(keys))
        if not self.own_streams:
            erased.elsewhere[self.table.name] = (self.key, list(keys))
        return erased

    def _ids(self, keys: Sequence[Key]) -> list[Any]:
        return [key[0] for key in keys] if len(self.key) == 1 else list(keys)

    def _these(self, keys: Sequence[Key]) -> Condition:
        columns = [self.table.c[name] for name in self.key]
        if len(columns) == 1:
            return columns[0].in_([key[0] for key in keys])
        return tuple_(*columns).in_(list(keys))


class Owners:
    """Owners of the erased sessions: what an id of another owner's session leads to stays. Without owners all goes."""

    def __init__(self, work: UnitOfWork, kinds: Sequence[Erasable], selectors: Mapping[str, str]) -> None:
        self._work = work
        owned = [(kind, owner) for kind in kinds if (owner := _owner_of(kind)) is not None]
        self._ids = [(kind.table.name, column, owner) for kind, owner in owned for column in _own_ids(kind)]
        self._known = {selectors[name] for name in (OWNER, USER) if name in selectors}
        self._session = None if self._known else selectors.get(SESSION)

    def learn_from_tables(self) -> None:
        """Take the owners of the named session from its rows."""
        if self._session is not None:
            self._known = {owner for _, owner in self._have([self._session])}

    @property
    def are_sought(self) -> bool:
        """Whether no row tells the owner of the named session."""
        return self._session is not None and not self._known

    def learn(self, table: str, cells: Mapping[str, Any]) -> None:
        """Take the owner from a lost row, if it was the row of the named session."""
        for name, column, owner in self._ids:
            if name == table and cells.get(str(column.key)) == self._session and (of := cells.get(str(owner.key))):
                self._known.add(str(of))

    def others_have(self, ids: Values) -> set[str]:
        """The ids that belong to sessions of other owners."""
        return {id for id, owner in self._have(ids) if owner not in self._known} if self._known else set()

    def _have(self, ids: Values) -> Iterator[tuple[str, str]]:
        for _, column, owner in self._ids:
            query = select(column, owner).where(column.in_(ids), owner.is_not(None), owner != literal(""))
            yield from ((id, of) for id, of in self._work.found(query, unreadable=OnUnreadable.LEAVE_OUT))


def _owner_of(kind: Erasable) -> ColumnElement[Any] | None:
    by = kind.by.get(OWNER)
    return by.columns[0] if by is not None and kind.rooted and len(kind.key) == 1 else None


def _own_ids(kind: Erasable) -> list[ColumnElement[Any]]:
    """The columns of ids that a session has as its own, and not as a reference to others."""
    references = [column.key for column in kind.by[LINK].columns] if LINK in kind.by else []
    return [column for column in kind.by[SESSION].columns if column.key not in references] if SESSION in kind.by else []


def followed(ids: Iterable[str], otherwise: str | None = None) -> dict[str, list[str]]:
    """Follow minted ids as those of sessions. `otherwise`: the selector for chosen ids, which sessions of others may have."""
    known = [*dict.fromkeys(ids)]
    found = {SESSION: [id for id in known if _UNIQUE.fullmatch(id)]}
    if otherwise is not None:
        found[otherwise] = [id for id in known if not _UNIQUE.fullmatch(id)]
    return found


def found_by(selector: str) -> Follow:
    """Follow names to what this selector finds."""
    return lambda names: {selector: [*names]}


def delete_some(work: UnitOfWork, table: Table, condition: Condition) -> int:
    """Delete up to SOME rows that meet the condition; how many."""
    key = list(table.primary_key.columns)
    some = select(*key).where(condition).limit(SOME)
    return work.change(delete(table).where(row_value(key).in_(some)))


def in_parts(keys: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Split keys, so that no statement has too many parameters."""
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


@contextmanager
def unlogged(work: UnitOfWork) -> Iterator[None]:
    """Write no events of the block's changes: its rows are taken out of the log instead."""
    journal = work.events.journal
    if journal is None:
        yield
        return
    work.events.journal = None
    try:
        yield
    finally:
        work.events.journal = journal
