"""The plan of an erasure: items found in rows, in the quarantine and in the event log, before anything is deleted."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from json import dumps, loads
from typing import Any

from sqlalchemy import Column, Table, select

from persist.blobs.upkeep import ErasableBlobs
from persist.db.changes.journal import key_of
from persist.db.dialects.backends import operations_of
from persist.db.operations.erasing import IDS, SESSION, Elsewhere, Erasable, Key, Lead, Owners, SelectorPath, in_parts
from persist.db.schema.column_types import Label
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable, error_of
from persist.domains import upkeeps
from persist.errors import UnreadableRow
from persist.events.erasing import changes_in, in_streams, is_there, named_in, stream_named, unreadable_events
from persist.events.models import event_log
from persist.maintenance.quarantine import quarantine, text_of
from persist.schema.metadata import metadata

# Rows that the tables may have no more: those of which the event log tells, and those in the quarantine.

_PART = 200
_Q = quarantine.c
TABLES = {str(table.name): table for table in metadata.sorted_tables}
Cells = Mapping[str, Any]


def logged_rows(work: UnitOfWork) -> Iterator[tuple[Table, Mapping[str, Any], Cells, bool]]:
    """The rows of an event: table, values, text of cells, and whether the row was written or deleted."""
    for stream, change in changes_in(work):
        table = TABLES.get(str(change["table"]))
        if table is not None:
            values = named_in(table, stream, change)
            cells = {name: str(cell) for name, cell in values.items() if isinstance(cell, str | int)}
            yield table, values, cells, change.get("op") == "put"


def quarantined_rows(work: UnitOfWork) -> Iterator[tuple[str, Cells]]:
    """Each row of the quarantine: its table, and the text of its cells."""
    for _, _, table, cells in quarantined_cells(work):
        yield table, cells


def quarantined_cells(work: UnitOfWork, *, whole: bool = False) -> Iterator[tuple[str, str, str, Cells]]:
    """Each quarantined row: id, group, table, cells' texts. `whole`: a cell of no text gets one that equals no stored text."""
    after = ""
    while True:
        query = select(_Q.id, _Q.group_id, _Q.table_name, _Q.contents).where(_Q.id > after).order_by(_Q.id).limit(_PART)
        found: Sequence[Any] = work.found(query, unreadable=OnUnreadable.LEAVE_OUT)
        for id, group, table, contents in found:
            yield id, group, table, {name: _plain(cell, whole) for name, cell in loads(contents)["row"].items()}
        if len(found) < _PART:
            return
        after = found[-1][0]


def types_in_log(column: Column[Any]) -> tuple[type, ...]:
    """The types of a key column's values in the log."""
    if isinstance(column.type, Label):
        return (str,)
    return (int,) if column.type.python_type is int else (str, int, float)


def _plain(cell: Any, whole: bool) -> Any:
    if not isinstance(cell, dict):
        return None
    found = str(cell["integer"]) if "integer" in cell else text_of(cell)
    return f"\0{dumps(cell, sort_keys=True)}" if whole and found is None else found


ROWS = "rows whose key cannot be read: run `persist doctor --fix`, and erase again"
EVENTS = "events that cannot be read and may be about it, in streams that others share: run `persist doctor --fix`"
ORPHANS = "rows whose parent is gone, whoever they are about: `persist doctor` names their tables, `--fix` sets them aside"
OTHERS = "ids in rows of the person that sessions of other owners have: these are not followed; name what is the person's"


@cache
def kinds(*, trial: bool) -> dict[str, Erasable]:
    """Every kind of item to erase, by the name of its table, in the order of erasing."""
    listed: list[Erasable] = [
        *(kind for upkeep in reversed([*upkeeps().values()]) for kind in upkeep.erasables),
        ErasableBlobs(metadata.sorted_tables, trial=trial),  # last: what the others delete names no blob any more
    ]
    return {kind.table.name: kind for kind in listed}


def shared_tables() -> list[Table]:
    """The tables of items whose events are in shared streams."""
    return [kind.table for kind in kinds(trial=True).values() if not kind.own_streams]


ErasedItems = Sequence[tuple[str, Sequence[Key], Elsewhere]]
"""Deleted items of a kind, with the keys of rows whose events are in shared streams."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an erasure erases.

    things    the keys of the items to erase, by kind
    sessions  the ids of all sessions among the items
    kept      what was found and cannot be erased as it is: how many, by the reason
    """

    things: Mapping[str, Mapping[Key, None]]
    sessions: Mapping[str, None]
    kept: Mapping[str, int]


def planned(work: UnitOfWork, selectors: Mapping[str, str], *, trial: bool = False) -> Plan:
    """The plan of everything that the selectors find in the tables, in the event log and in the quarantine."""
    search = _Search(work, selectors, trial=trial)
    search.learn_owners()
    search.from_tables(selectors)
    search.follow()
    search.from_log_and_quarantine()
    search.add_what_goes_along()
    search.check()
    return search.plan(search.what_stays())


def planned_again(work: UnitOfWork, selectors: Mapping[str, str], erased: ErasedItems) -> Plan:
    """The plan of rows that other transactions wrote while the `erased` items were deleted.

    It has new rows of erased items, and items made from erased items, such as forks. A session's selector adds items of every
    kind; other selectors add items of kinds without a root row. Without selectors the plan has only items made from erased ones.
    """
    search = _Search(work, selectors, trial=False)
    search.learn_owners()
    search.from_erased(erased, rows=bool(selectors))
    search.from_tables(selectors, begun=False)
    search.follow()
    if selectors:
        search.from_log_and_quarantine()
    search.add_what_goes_along()
    search.check()
    return search.plan({})


class _Search:
    """The items of a plan that were found so far. Each pass adds items."""

    def __init__(self, work: UnitOfWork, selectors: Mapping[str, str], *, trial: bool) -> None:
        self._work = work
        self._kinds = kinds(trial=trial)
        self._things: dict[str, dict[Key, None]] = {name: {} for name in self._kinds}
        self._sessions: dict[str, None] = {selectors[SESSION]: None} if SESSION in selectors else {}
        self._new: list[tuple[str, list[Key]]] = []
        self._erased: dict[str, set[Key]] = {name: set() for name in self._kinds}
        self._left_out: Counter[tuple[str, str, str]] = Counter()
        self._named = {selector: {value} for selector, value in selectors.items()}
        self._owners = Owners(work, [*self._kinds.values()], selectors)
        self._of_others: set[str] = set()
        ids = self._named.setdefault(SESSION, set())
        self._going = {name: _ErasedKeys((things, self._erased[name]), ids) for name, things in self._things.items()}
        self._notes: dict[str, dict[str, str]] = {name: {} for name in self._kinds}
        self._rows_there: dict[tuple[str, ...], bool] = {}
        self._ways: dict[str, list[tuple[str, SelectorPath]]] = {}
        self._leading: dict[str, list[tuple[str, Lead]]] = {}
        for name, kind in self._kinds.items():
            for way in kind.ways():
                self._ways.setdefault(way.table, []).append((name, way))
            for lead in kind.leading:
                self._leading.setdefault(lead.table, []).append((name, lead))

    def plan(self, kept: Mapping[str, int]) -> Plan:
        return Plan(self._things, self._sessions, kept)

    def learn_owners(self) -> None:
        """Learn the owner of the named session: from its row, else from the log and the quarantine."""
        self._owners.learn_from_tables()
        if self._owners.are_sought:
            for table, _, cells, _ in logged_rows(self._work):
                self._owners.learn(table.name, cells)
            for aside, cells in quarantined_rows(self._work):
                self._owners.learn(aside, cells)

    def from_erased(self, erased: ErasedItems, *, rows: bool) -> None:
        """Begin with erased items; with `rows`, add those that have rows again."""
        for name, keys, elsewhere in erased:
            self._new.append((name, [*keys]))
            if rows:
                self._add(name, self._kinds[name].written_again(self._work, keys, elsewhere))
        for name, keys, _ in erased:
            self._erased[name].update(keys)

    def from_tables(self, selectors: Mapping[str, str], *, begun: bool = True) -> None:
        """Add what the selectors find in rows. `begun`: also items with a row of their own, by other selectors than sessions."""
        for name, kind in self._kinds.items():
            for selector, value in selectors.items():
                if begun or selector == SESSION or not kind.rooted:
                    self._add(name, self._found(kind, selector, [value]))

    def from_log_and_quarantine(self) -> None:
        """Add items from rows that only the event log or the quarantine has, and follow them, until nothing is new."""
        known = -1
        while self._size() > known:
            known = self._size()
            for table, values, cells, put in logged_rows(self._work):
                self._read_lost_row(table.name, cells, partial(self._is_there, table, values))
                if put:
                    self._add_what_was_made_of_it(table.name, cells)
            for name, aside in quarantined_rows(self._work):
                self._read_lost_row(name, aside, lambda: False)
                self._add_what_was_made_of_it(name, aside)
            self.follow()

    def add_what_goes_along(self) -> None:
        """Add items of other kinds that only the found items name, such as system prompts."""
        for name, kind in self._kinds.items():
            for part in in_parts([*self._things[name]], _PART):
                self._add_all(kind.named_alone(self._work, part))
            self._mentioned(name, kind)

    def check(self) -> None:
        """Raise a PersistError if a found item cannot be erased."""
        for name, kind in self._kinds.items():
            for part in in_parts([*self._things[name]], _PART):
                kind.check(self._work, part)

    def what_stays(self) -> Mapping[str, int]:
        events = unreadable_events(self._work, shared_tables()) if _errors(self._work, of=event_log.name) else 0
        orphans = operations_of(self._work.runtime.dialect).orphans(self._work.select, metadata.sorted_tables)
        lost = sum(count for _, _, count in orphans)
        return {ROWS: self._left_out.total(), EVENTS: events, OTHERS: len(self._of_others), ORPHANS: lost}

    def _mentioned(self, name: str, kind: Erasable) -> None:
        """Add items that rows of the log and the quarantine name, such as system prompts."""
        if type(kind).mentioned is Erasable.mentioned:
            return
        streams = kind.streams([*self._things[name]])
        for part in in_parts(streams, _PART):
            for _, change in changes_in(self._work, in_streams(part)):
                self._add_all(kind.mentioned(change))
        known = set(streams)
        for table, cells in quarantined_rows(self._work) if known else ():
            if table in TABLES and stream_named(TABLES[table], cells) in known:
                self._add_all(kind.mentioned({"table": table, "row": cells}))

    def _add_all(self, found: Mapping[str, Iterable[Key]]) -> None:
        for name, keys in found.items():
            self._add(name, keys)

    def _add(self, name: str, keys: Iterable[Key]) -> None:
        known, erased = self._things[name], self._erased[name]
        new = [key for key in dict.fromkeys(keys) if key not in known and key not in erased]
        known.update(dict.fromkeys(new))
        if new:
            self._new.append((name, new))

    def _size(self) -> int:
        return sum(map(len, (*self._things.values(), *self._named.values()))) + sum(map(len, self._notes.values()))

    def _read_lost_row(self, table: str, cells: Cells, is_there: Callable[[], bool]) -> None:
        """Add items from a row of the log or the quarantine, unless the table has the row and was asked."""
        found = [
            (name, key)
            for name, way in self._ways.get(table, ())
            if (key := way.key_in(cells, self._named.get(way.selector, ()))) is not None and key not in self._things[name]
        ]
        leads = [
            (selector, values)
            for name, lead in self._leading.get(table, ())
            for selector, values in lead.names_in(cells, self._things[name]).items()
            if {*values} - self._named.get(selector, set())
        ]
        if (found or leads) and not is_there():
            for name, key in found:
                self._add(name, [key])
            for selector, values in leads:
                self._lead({selector: values})

    def _is_there(self, table: Table, values: Mapping[str, Any]) -> bool:
        """Whether the table has the row of a change. An impossible key counts as present, so that the change is ignored."""
        if not all(isinstance(values.get(name), types_in_log(table.c[name])) for name in key_of(table)):
            return True
        key = (table.name, *(str(values.get(name)) for name in key_of(table)))
        if key not in self._rows_there:
            self._rows_there[key] = is_there(self._work, table, values)
        return self._rows_there[key]

    def _add_what_was_made_of_it(self, table: str, cells: Cells) -> None:
        """Add the item of a row that was made from an erased item, such as a fork."""
        for name, kind in self._kinds.items():
            made = kind.made_in(table, cells, self._going[name], self._notes[name])
            self._add(name, [key for key in made if len(key) == len(kind.key)])

    def follow(self) -> None:
        """Add the items that belong to found items, until nothing is new."""
        while self._new:
            name, keys = self._new.pop()
            kind = self._kinds[name]
            for part in in_parts(keys, _PART):
                self._add(name, kind.derived(self._work, part))
                for lead in kind.leading:
                    self._lead(lead.found(self._work, part))

    def _lead(self, leads: Mapping[str, Sequence[str]]) -> None:
        for selector, values in leads.items():
            known = self._named.setdefault(selector, set())
            new = [value for value in dict.fromkeys(values) if value not in known and value not in self._of_others]
            for part in in_parts(new, _PART) if selector in IDS else ():
                self._of_others |= self._owners.others_have(part)
            new = [value for value in new if value not in self._of_others]
            known.update(new)
            if new:
                self._find(selector, new)

    def _find(self, selector: str, values: Sequence[str]) -> None:
        if selector in IDS:
            self._sessions.update(dict.fromkeys(values))
        for part in in_parts(values, _PART):
            for name, kind in self._kinds.items():
                self._add(name, self._found(kind, selector, part))

    def _found(self, kind: Erasable, selector: str, values: Sequence[str]) -> list[Key]:
        """The items that the values select, and forks of sessions with these ids, also where the sessions are gone."""
        before = len(_errors(self._work))
        taken = kind.derived(self._work, [(value,) for value in values]) if selector == SESSION and len(kind.key) == 1 else []
        found = [*kind.find(self._work, selector, values), *taken]
        errors = _errors(self._work)[before:]
        # another selector finds them, too
        self._left_out |= Counter((error.table, error.column, repr(error.key)) for error in errors)
        return found


def _errors(work: UnitOfWork, of: str | None = None) -> list[UnreadableRow]:
    """The cells that the transaction could not read so far, in table `of` or anywhere."""
    return [error for cell in work.carried or () if (error := error_of(cell)).table == of or of is None]


class _ErasedKeys:
    """The keys of erased items of one kind, and the ids of erased sessions, whose rows may be gone."""

    def __init__(self, things: Sequence[Container[Key]], sessions: Container[str]) -> None:
        self._things, self._sessions = things, sessions

    def __contains__(self, key: object) -> bool:
        if any(key in some for some in self._things):
            return True
        return isinstance(key, tuple) and len(key) == 1 and key[0] in self._sessions
