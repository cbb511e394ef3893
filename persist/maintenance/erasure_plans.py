"""What an erasure is going to erase: found in rows, in the quarantine and in the event log, before anything is deleted."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from json import dumps, loads
from typing import Any

from sqlalchemy import Column, Table, select

from persist.blobs.upkeep import ErasableBlobs
from persist.db.changes.event_streams import key_of
from persist.db.dialects.backends import operations_of
from persist.db.operations.erasing import IDS, SESSION, Elsewhere, Erasable, Owners, in_parts
from persist.db.operations.erasing_ways import Key, Lead, Way
from persist.db.schema.column_types import Label
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable, error_of
from persist.domains import upkeeps
from persist.errors import UnreadableRow
from persist.events.erasing import changes_in, in_streams, is_there, named_in, stream_named, unreadable_events
from persist.events.models import event_log
from persist.maintenance.setting_aside import quarantine, text_of
from persist.schema.metadata import metadata

_PART = 200
_Q = quarantine.c

ROWS = "rows whose key cannot be read: run `persist doctor --fix`, and erase again"
EVENTS = "events that cannot be read and may be about it, in streams that others share: run `persist doctor --fix`"

ORPHANS = "rows whose parent is gone, whoever they are about: `persist doctor` names their tables, `--fix` sets them aside"

OTHERS = "ids in rows of the person that sessions of other owners have: these are not followed; name what is the person's"

TABLES = {str(table.name): table for table in metadata.sorted_tables}
Cells = Mapping[str, Any]


@cache
def kinds(*, trial: bool) -> dict[str, Erasable]:
    """Every kind of thing that is erased, by the name of its table, in the order in which they are erased."""
    listed: list[Erasable] = [
        *(kind for upkeep in reversed([*upkeeps().values()]) for kind in upkeep.erasables),
        ErasableBlobs(metadata.sorted_tables, trial=trial),  # last: what the others delete names no blob any more
    ]
    return {kind.table.name: kind for kind in listed}


def shared_tables() -> list[Table]:
    """The tables of things whose events are in streams that others share."""
    return [kind.table for kind in kinds(trial=True).values() if not kind.own_streams]


class Plan:
    """The things that are erased, by kind, and the ids of all sessions among them.

    `erased`: things that are deleted already, in parts of one kind. The plan then has what others wrote since: rows of these
    things again, what was made from them, such as forks, and of what the selectors find whatever begins with no row of its own,
    or has no rows any more. Without selectors it has what was made from these things alone.
    """

    def __init__(
        self,
        work: UnitOfWork,
        selectors: Mapping[str, str],
        *,
        trial: bool = False,
        erased: Sequence[tuple[str, Sequence[Key], Elsewhere]] | None = None,
    ) -> None:
        self._work = work
        self._kinds = kinds(trial=trial)
        self.things: dict[str, dict[Key, None]] = {name: {} for name in self._kinds}
        self.sessions: dict[str, None] = {}
        self._new: list[tuple[str, list[Key]]] = []
        self._erased: dict[str, set[Key]] = {name: set() for name in self._kinds}
        self.kept: Mapping[str, int] = {}
        """What was found and cannot be erased as it is: how many, by the reason."""
        self._left_out: Counter[tuple[str, str, str]] = Counter()
        if SESSION in selectors:
            self.sessions[selectors[SESSION]] = None
        self._named = {selector: {value} for selector, value in selectors.items()}
        self._owners = Owners(work, [*self._kinds.values()], selectors)
        self._of_others: set[str] = set()
        if self._owners.are_sought:
            for table, _, cells, _ in _logged(work):
                self._owners.learn(table.name, cells)
            for aside, cells in _quarantined(work):
                self._owners.learn(aside, cells)
        ids = self._named.setdefault(SESSION, set())
        self._going = {name: _Going((things, self._erased[name]), ids) for name, things in self.things.items()}
        self._notes: dict[str, dict[str, str]] = {name: {} for name in self._kinds}
        self._there: dict[tuple[str, ...], bool] = {}
        self._ways: dict[str, list[tuple[str, Way]]] = {}
        self._leading: dict[str, list[tuple[str, Lead]]] = {}
        for name, kind in self._kinds.items():
            for way in kind.ways():
                self._ways.setdefault(way.table, []).append((name, way))
            for lead in kind.leading:
                self._leading.setdefault(lead.table, []).append((name, lead))
        for name, keys, elsewhere in erased or ():
            self._new.append((name, [*keys]))
            if selectors:
                self._add(name, self._kinds[name].again(work, keys, elsewhere))
        for name, keys, _ in erased or ():
            self._erased[name].update(keys)
        for name, kind in self._kinds.items():
            for selector, value in selectors.items():
                if erased is None or selector == SESSION or not kind.rooted:
                    self._add(name, self._found(kind, selector, [value]))
        self._follow()
        while (selectors or erased is None) and self._looked():
            self._follow()
        for name, kind in self._kinds.items():
            for part in in_parts([*self.things[name]], _PART):
                self._add_all(kind.also(work, part))
            self._mentioned(name, kind)
        for name, kind in self._kinds.items():
            for part in in_parts([*self.things[name]], _PART):
                kind.check(work, part)
        if erased is None:
            events = unreadable_events(work, shared_tables()) if _errors(work, of=event_log.name) else 0
            lost = sum(count for _, _, count in operations_of(work.runtime.dialect).orphans(work.select, metadata.sorted_tables))
            self.kept = {ROWS: self._left_out.total(), EVENTS: events, OTHERS: len(self._of_others), ORPHANS: lost}

    def _mentioned(self, name: str, kind: Erasable) -> None:
        """Add what rows name that are in the log or in the quarantine alone."""
        if type(kind).mentioned is Erasable.mentioned:
            return
        streams = kind.streams([*self.things[name]])
        for part in in_parts(streams, _PART):
            for _, change in changes_in(self._work, in_streams(part)):
                self._add_all(kind.mentioned(change))
        known = set(streams)
        for table, cells in _quarantined(self._work) if known else ():
            if table in TABLES and stream_named(TABLES[table], cells) in known:
                self._add_all(kind.mentioned({"table": table, "row": cells}))

    def _add_all(self, found: Mapping[str, Iterable[Key]]) -> None:
        for name, keys in found.items():
            self._add(name, keys)

    def _add(self, name: str, keys: Iterable[Key]) -> None:
        known, erased = self.things[name], self._erased[name]
        new = [key for key in dict.fromkeys(keys) if key not in known and key not in erased]
        known.update(dict.fromkeys(new))
        if new:
            self._new.append((name, new))

    def _looked(self) -> bool:
        """Look once through the log and the quarantine; whether they name anything new."""
        known = self._size()
        for table, values, cells, put in _logged(self._work):
            self._look(table.name, cells, partial(self._is_there, table, values))
            if put:
                self._look_for_kin(table.name, cells)
        for name, aside in _quarantined(self._work):
            self._look(name, aside, lambda: False)
            self._look_for_kin(name, aside)
        return self._size() > known

    def _size(self) -> int:
        return sum(map(len, (*self.things.values(), *self._named.values()))) + sum(map(len, self._notes.values()))

    def _look(self, table: str, cells: Cells, there: Callable[[], bool]) -> None:
        """Add what a row says that is no longer there. One that is there says itself whose it is by now."""
        found = [
            (name, key)
            for name, way in self._ways.get(table, ())
            if (key := way.told(cells, self._named.get(way.selector, ()))) is not None and key not in self.things[name]
        ]
        leads = [
            (selector, values)
            for name, lead in self._leading.get(table, ())
            for selector, values in lead.told(cells, self.things[name]).items()
            if {*values} - self._named.get(selector, set())
        ]
        if (found or leads) and not there():
            for name, key in found:
                self._add(name, [key])
            for selector, values in leads:
                self._lead({selector: values})

    def _is_there(self, table: Table, values: Mapping[str, Any]) -> bool:
        """Whether a row that a change names is there. A key that no row can have says nothing, as if it was."""
        if not all(isinstance(values.get(name), _taken_by(table.c[name])) for name in key_of(table)):
            return True
        key = (table.name, *(str(values.get(name)) for name in key_of(table)))
        if key not in self._there:
            self._there[key] = is_there(self._work, table, values)
        return self._there[key]

    def _look_for_kin(self, table: str, cells: Cells) -> None:
        """Add what a row says that was made from what goes, such as forks."""
        for name, kind in self._kinds.items():
            told = kind.told(table, cells, self._going[name], self._notes[name])
            self._add(name, [key for key in told if len(key) == len(kind.key)])

    def _follow(self) -> None:
        """Add what belongs to the things that were found, until nothing is new."""
        while self._new:
            name, keys = self._new.pop()
            kind = self._kinds[name]
            for part in in_parts(keys, _PART):
                self._add(name, kind.more(self._work, part))
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
            self.sessions.update(dict.fromkeys(values))
        for part in in_parts(values, _PART):
            for name, kind in self._kinds.items():
                self._add(name, self._found(kind, selector, part))

    def _found(self, kind: Erasable, selector: str, values: Sequence[str]) -> list[Key]:
        """What is found; and what was taken from sessions with these ids, which may be there although they are gone."""
        before = len(_errors(self._work))
        taken = kind.more(self._work, [(value,) for value in values]) if selector == SESSION and len(kind.key) == 1 else []
        found = [*kind.find(self._work, selector, values), *taken]
        errors = _errors(self._work)[before:]
        self._left_out |= Counter(
            (error.table, error.column, repr(error.key)) for error in errors
        )  # another selector finds them, too
        return found


def _errors(work: UnitOfWork, of: str | None = None) -> list[UnreadableRow]:
    """What the step could not read so far, in one table or in any."""
    return [error for cell in work.carried or () if (error := error_of(cell)).table == of or of is None]


class _Going:
    """The keys of what goes of one kind, and the ids of sessions, of which the things themselves may be gone."""

    def __init__(self, things: Sequence[Container[Key]], sessions: Container[str]) -> None:
        self._things, self._sessions = things, sessions

    def __contains__(self, key: object) -> bool:
        return any(key in some for some in self._things) or (
            isinstance(key, tuple) and len(key) == 1 and key[0] in self._sessions
        )


def _logged(work: UnitOfWork) -> Iterator[tuple[Table, Mapping[str, Any], Cells, bool]]:
    """Each row that an event is about: its table, its values, the text of its cells, and whether it was written or deleted."""
    for stream, change in changes_in(work):
        table = TABLES.get(str(change["table"]))
        if table is not None:
            values = named_in(table, stream, change)
            cells = {name: str(cell) for name, cell in values.items() if isinstance(cell, str | int)}
            yield table, values, cells, change.get("op") == "put"


def _quarantined(work: UnitOfWork) -> Iterator[tuple[str, Cells]]:
    for _, _, table, cells in quarantined_cells(work):
        yield table, cells


def quarantined_cells(work: UnitOfWork, *, whole: bool = False) -> Iterator[tuple[str, str, str, Cells]]:
    """Each row of the quarantine: its id and group, its table, and the text of its cells.

    `whole`: what is no text has a text of its own, which no text that is stored equals.
    """
    after = ""
    while True:
        query = select(_Q.id, _Q.group_id, _Q.table_name, _Q.contents).where(_Q.id > after).order_by(_Q.id).limit(_PART)
        found: Sequence[Any] = work.found(query, unreadable=OnUnreadable.LEAVE_OUT)
        for id, group, table, contents in found:
            yield id, group, table, {name: _plain(cell, whole) for name, cell in loads(contents)["row"].items()}
        if len(found) < _PART:
            return
        after = found[-1][0]


def _taken_by(column: Column[Any]) -> tuple[type, ...]:
    """What the column can hold, as the log has it, if it is in a key."""
    if isinstance(column.type, Label):
        return (str,)
    return (int,) if column.type.python_type is int else (str, int, float)


def _plain(cell: Any, whole: bool) -> Any:
    if not isinstance(cell, dict):
        return None
    found = str(cell["integer"]) if "integer" in cell else text_of(cell)
    return f"\0{dumps(cell, sort_keys=True)}" if whole and found is None else found
