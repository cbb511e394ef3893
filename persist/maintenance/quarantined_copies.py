"""Copies in the quarantine of what is erased: of rows that were set aside because a cell cannot be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from persist.db.operations.erasing import Key
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.events import erasing as log
from persist.events.models import event_log
from persist.maintenance.erasure_marks import Part
from persist.maintenance.erasure_plans import TABLES, kinds, quarantined_cells, shared_tables

EVENTS_ASIDE = (
    "events in the quarantine that cannot be read and may be about it: see `persist quarantine ls`, and delete those that are"
)
_Keys = dict[str, tuple[tuple[str, ...], set[Key]]]


@dataclass(slots=True)
class Copies:
    """The groups of erased copies, and the number of `events` that stay because their owner is unknown."""

    groups: set[str] = field(default_factory=set)
    events: int = 0


def copies_of(work: UnitOfWork, parts: Sequence[Part], selectors: Mapping[str, str]) -> Copies:
    """The copies of erased items and their rows, and of items that the selectors find by another column."""
    known, shared = kinds(trial=True), shared_tables()
    streams, found = {stream for part in parts for stream in known[part.kind].streams(part.things)}, _Keys()
    for table, (columns, keys) in elsewhere_of(parts).items():
        found[table] = (columns, {tuple(str(cell) for cell in key) for key in keys})
    for part in parts:
        if part.kind not in part.elsewhere:  # else some of them may be there, because others name them
            found.setdefault(part.kind, (known[part.kind].key, set()))[1].update(part.things)
    copies = Copies()
    for _, group, table, cells in quarantined_cells(work, whole=True):
        kind = known.get(table)
        if kind is None or not any(kind.by[by].matches(cells, {word}) for by, word in selectors.items() if by in kind.by):
            continue
        copies.groups.add(group)
        key = tuple(cell for name in kind.key if isinstance(cell := cells.get(name), str))
        if len(key) == len(kind.key):
            found.setdefault(table, (kind.key, set()))[1].add(key)
            streams.update(kind.streams([key]))
    is_kept = log.without(found)
    for _, group, table, cells in quarantined_cells(work, whole=True):
        of = TABLES.get(table)
        stream = cells.get("stream_id") if of is event_log else None if of is None else log.stream_named(of, cells)
        if stream in streams or not is_kept([{"table": table, "row": cells}]):
            copies.groups.add(group)
        elif of is event_log and log.may_hold(shared, stream):
            copies.events += 1
    return copies


def elsewhere_of(parts: Sequence[Part]) -> _Keys:
    """The keys of erased rows whose events may be in streams of others, by table, with the columns of the key."""
    found: _Keys = {}
    for part in parts:
        for table, (columns, keys) in part.elsewhere.items():
            found.setdefault(table, (columns, set()))[1].update(keys)
    return found
