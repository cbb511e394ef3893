"""Unfinished erasures, in rows of `_meta`: the items to erase, and the progress.

`erasure:<id>` has the selectors and the counts so far, `erasure:<id>:<number>` some of the items and their progress. All of them
are gone when the erasure is done. Any program that may write to the database may write such rows. Every reading of such a row
therefore checks its content, and the row affects the database alone: no row names a folder or a file.
"""

import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any

from pydantic import AwareDatetime, Field, TypeAdapter
from sqlalchemy import bindparam, delete, or_, select, update

from persist.db.dialects.backends import operations_of
from persist.db.dialects.interface import Problem, Severity
from persist.db.expressions.locking import LOCK_TIMEOUT_SECONDS
from persist.db.operations.bounded_deletion import role_seeing_some
from persist.db.operations.erasing import SELECTORS, Erased, Key, in_parts
from persist.db.schema.base import table_of
from persist.db.schema.column_types import Label
from persist.db.schema.meta_table import Meta
from persist.db.statements.prepared import Row, Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import StoreBusy, StoreCorrupt
from persist.events import erasing as log
from persist.events.erasing import last_position
from persist.events.models import event_log
from persist.maintenance.erasure_plans import TABLES, Plan, kinds, planned_again, quarantined_cells, shared_tables
from persist.maintenance.steps import Run
from persist.store.store import Store

_M = table_of(Meta).c
SESSIONS = "session ids"
"""The kind of parts that hold the ids of all sessions that are erased, for their logs on the disk."""
_IDS = 200
PREFIX = "erasure:"
_END = "erasure;"
"""A text that sorts behind every key with the prefix."""
_key = bindparam("mark", type_=Label())
_ADD = Statement(table_of(Meta).insert())
_GET = Statement(select(_M.value).where(_M.key == _key))
_HOLD = Statement(select(_M.value).where(_M.key == _key).with_for_update())
_SET = Statement(update(table_of(Meta)).where(_M.key == _key).values(value=bindparam("content", type_=Label())))
NAME_FOLDER = "name their folder: `persist erase --session-logs HOME` for this person, or for any other"
"""The advice for an erasure that has only session logs left."""
DAMAGED = "the note of an unfinished erasure is damaged; `persist doctor --fix` removes it, then erase the person again."
_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Counts = dict[str, _Count]


@dataclass(slots=True)
class Mark:
    """An erasure that has begun: the request, and the progress so far.

    logs       whether the logs of erased sessions are to be deleted, too, in the folder that a caller of `erase` names
    only_logs  whether nothing else is left to do
    role       the database role that began it, if row security shows it some rows alone; else None. Others leave it to that role.
    """

    id: Annotated[str, Field(min_length=1, pattern="^[^:;]+$")]
    selectors: dict[str, str]
    begun_at: AwareDatetime
    rows: _Counts = field(default_factory=dict)
    events: _Count = 0
    files: _Count = 0
    kept: _Counts = field(default_factory=dict)
    logs: bool = False
    only_logs: bool = False
    role: str | None = None

    def __post_init__(self) -> None:
        if not self.selectors or not self.selectors.keys() <= {*SELECTORS}:
            raise ValueError("selectors")

    def add(
        self,
        *,
        rows: Mapping[str, int] = Counter(),
        kept: Mapping[str, int] = Counter(),
        events: int = 0,
        files: int = 0,
        found: Mapping[str, int] = Counter(),
    ) -> None:
        """Count a step. `found`: all items that stay, instead of the former count."""
        self.rows = dict(Counter(self.rows) + Counter(rows))
        self.kept = dict(Counter({**self.kept, **found}) + Counter(kept))
        self.events += events
        self.files += files


@dataclass(slots=True)
class Part:
    """Some items of one kind. `upto`: the last position of events about them, once they are deleted."""

    key: str
    kind: str
    things: list[Key]
    upto: _Count | None = None
    elsewhere: dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = kinds(trial=False)
        width = 1 if self.kind == SESSIONS else len(known[self.kind].key) if self.kind in known else None
        if any(len(key) != width for key in self.things):
            raise ValueError("things")
        for table, (columns, keys) in self.elsewhere.items():
            cells = {type(cell) for key in keys for cell in key}
            if table not in TABLES or any(len(key) != len(columns) for key in keys) or not cells <= {str, int, float, type(None)}:
                raise ValueError("elsewhere")


@dataclass(slots=True)
class Unfinished:
    """The interrupted erasures, oldest first, and the ids of erasures whose rows are damaged."""

    marks: list[Mark] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


def begin(work: UnitOfWork, mark: Mark, parts: Sequence[tuple[str, Sequence[Key]]]) -> None:
    """Write a plan down. An existing mark gets the further parts."""
    key = f"{PREFIX}{mark.id}"
    if _read(work, key) is None:
        work.run(_ADD, key=key, value=_text(mark))
    else:
        work.run(_SET, mark=key, content=_text(mark))
    add(work, mark.id, parts)


def split(plan: Plan, known: Container[tuple[str, Key]]) -> list[tuple[str, Sequence[Key]]]:
    """The items of a plan beyond the known ones, in parts that one transaction erases."""
    sizes = {**{name: kind.batch for name, kind in kinds(trial=False).items()}, SESSIONS: _IDS}
    things = {**plan.things, SESSIONS: [(id,) for id in plan.sessions]}
    new = {name: [key for key in things[name] if (name, key) not in known] for name in sizes}
    return [(name, part) for name, size in sizes.items() for part in in_parts(new[name], size)]


def add(work: UnitOfWork, id: str, parts: Sequence[tuple[str, Sequence[Key]]]) -> list[str]:
    """Write down further parts of an erasure, unless it is done; their keys."""
    key = f"{PREFIX}{id}"
    if _read(work, key) is None:
        return []
    first, added = len(part_keys(work, id)), []
    for number, (kind, things) in enumerate(parts, first):
        part = Part(f"{key}:{number:09}", kind, list(things))
        work.run(_ADD, key=part.key, value=_text(part))
        added.append(part.key)
    return added


def take_apart(work: UnitOfWork, id: str, part: Part) -> list[str]:
    """Split a part into one part per item, so that every erasable item is erased; the keys of the parts."""
    others = [(part.kind, [thing]) for thing in part.things[1:]]
    part.things = part.things[:1]
    work.run(_SET, mark=part.key, content=_text(part))
    return [part.key, *add(work, id, others)]


def unfinished(work: UnitOfWork) -> Unfinished:
    """The interrupted erasures that this role may continue. An erasure with a damaged row is left alone, and stops no other."""
    found, mine = Unfinished(), role(work)
    for id in dict.fromkeys(key.removeprefix(PREFIX).partition(":")[0] for key in _keys(work, PREFIX, _END)):
        try:
            mark = mark_of(work, id)
            if mark is None or not all(part_of(work, key) for key in part_keys(work, id)):
                raise StoreCorrupt("_meta", DAMAGED)
            if mine in (None, mark.role):  # to others the rows may be hidden, and what they do not see they would call erased
                found.marks.append(mark)
        except StoreCorrupt:
            found.damaged.append(id)
    return found


def role(work: UnitOfWork) -> str | None:
    """The database role of this process if row security shows it some rows alone; None if it sees all."""
    return role_seeing_some(work, [TABLES["chat_messages"]])


def mark_of(work: UnitOfWork, id: str) -> Mark | None:
    """The erasure with this id; None if it is done. Raises StoreCorrupt if it is damaged."""
    row = _read(work, f"{PREFIX}{id}")
    mark: Mark | None = None if row is None else _parsed(Mark, row[0])
    if mark is not None and mark.id != id:
        raise StoreCorrupt("_meta", DAMAGED)
    return mark


def keep(work: UnitOfWork, mark: Mark) -> None:
    """Store how far the erasure is."""
    work.run(_SET, mark=f"{PREFIX}{mark.id}", content=_text(mark))


def part_keys(work: UnitOfWork, id: str) -> list[str]:
    """The keys of an erasure's parts, in the order in which they are erased."""
    return _keys(work, f"{PREFIX}{id}:", f"{PREFIX}{id};")


def parts(work: UnitOfWork, id: str) -> list[Part]:
    """The parts of an erasure."""
    return [part for key in part_keys(work, id) if (part := part_of(work, key)) is not None]


def part_of(work: UnitOfWork, key: str) -> Part | None:
    """A part of an erasure; None if the erasure is done. Raises StoreCorrupt if it is damaged."""
    row = _read(work, key)
    part: Part | None = None if row is None else _parsed(Part, row[0])
    if part is not None and part.key != key:
        raise StoreCorrupt("_meta", DAMAGED)
    return part


def deleted(work: UnitOfWork, part: Part, erased: Erased, upto: int) -> None:
    """Note that the rows of a part are deleted."""
    part.upto, part.elsewhere = upto, {**erased.elsewhere}
    work.run(_SET, mark=part.key, content=_text(part))


def open_shared(work: UnitOfWork, mark: Mark, parts: Sequence[Part]) -> None:
    """Check shared items, such as files, once more: rows written since may name them again."""
    for part in parts:
        if part.upto is not None and part.kind != SESSIONS and not kinds(trial=False)[part.kind].by:
            part.upto = None
            work.run(_SET, mark=part.key, content=_text(part))
            mark.kept = {reason: count for reason, count in mark.kept.items() if not reason.startswith(f"{part.kind}:")}


def finish(work: UnitOfWork, id: str, *, parts: Sequence[str], logs: bool, rest: bool) -> tuple[Mark | None, bool]:
    """Remove an erasure of which these parts are done, and the `logs` if they are to go; or note that the `rest` is done.

    Returns the erasure, None if somebody else removed it, and whether another call has added to it since then.
    """
    mark = mark_of(work, id)
    if mark is None:
        return None, False
    if set(part_keys(work, id)) - set(parts):
        return mark, True
    if mark.logs and not logs:
        mark.only_logs = rest
        keep(work, mark)
        return mark, False
    remove(work, id)
    return mark, False


def remove(work: UnitOfWork, id: str) -> None:
    """Remove all rows of an erasure."""
    key = f"{PREFIX}{id}"
    work.change(delete(table_of(Meta)).where(or_(_M.key == key, (_M.key > f"{key}:") & (_M.key < f"{key};"))))


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """Find interrupted erasures, and damaged rows of erasures."""
    found = unfinished(work)
    for mark in found.marks:
        left = "is not done; run `persist maintain`."
        if mark.only_logs:
            left = f"session logs are left; {NAME_FOLDER}."
        message = f"it began at {mark.begun_at:%Y-%m-%d %H:%M} UTC and {left}"
        yield Problem("erasure_unfinished", Severity.WARNING, f"erasure {mark.id}", message)
    for id in found.damaged:
        yield Problem("erasure_damaged", Severity.WARNING, "_meta", DAMAGED, partial(remove, id=id))


def _keys(work: UnitOfWork, low: str, high: str) -> list[str]:
    query = select(_M.key).where(_M.key > low, _M.key < high).order_by(_M.key)
    return [key for (key,) in work.found(query, unreadable=OnUnreadable.LEAVE_OUT)]


def _read(work: UnitOfWork, key: str) -> Row | None:
    """The row, locked against other writers if this transaction writes."""
    return work.row(_HOLD if work.writable else _GET, mark=key)


@cache
def _form(of: Any) -> TypeAdapter[Any]:
    return TypeAdapter(of)


def _parsed(of: Any, text: Any) -> Any:
    try:
        return _form(of).validate_json(text, strict=True)
    except (ValueError, TypeError):
        raise StoreCorrupt("_meta", DAMAGED) from None


def _text(content: Mark | Part) -> str:
    of: Any = type(content)
    return _form(of).dump_json(content).decode()


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


# What others wrote while rows of a person were erased: who had begun is waited for, without a lock that would stop others.

_PATIENCE = 5 * LOCK_TIMEOUT_SECONDS
"""As long as a step waits for a row that another transaction has locked, with its retries."""
_PAUSE = 0.02


def look_again(run: Run, store: Store, id: str, keys: Sequence[str], selectors: Mapping[str, str]) -> tuple[list[str], int]:
    """Wait for transactions that were writing while parts of an erasure were erased, and add their rows to the erasure.

    The new parts have rows that remain, and rows that only the log has because their writers deleted them. Without selectors they
    have only items made from items of these parts, such as forks. Returns the keys of the new parts, and a position: with
    selectors, all rows in events up to this position were seen. Raises StoreBusy if a writer goes on.
    """
    written = run(last_position, writes=False)  # transactions with smaller ones are waited for
    _wait_for_writers(run, store.runtime.sleep)
    chosen, known = set(keys), run(partial(parts, id=id), writes=False)
    erased = [(part.kind, part.things, part.elsewhere) for part in known if part.key in chosen and part.kind != SESSIONS]
    plan = run(partial(planned_again, selectors=selectors, erased=erased), writes=False)
    waiting = {(part.kind, key) for part in known if part.upto is None for key in part.things}
    late = split(plan, waiting)
    return run(partial(add, id=id, parts=late)) if late else [], written


def _wait_for_writers(run: Run, sleep: Callable[[float], object]) -> None:
    """Wait for every transaction that has written, or locked a row to; later ones go on. Raises StoreBusy after 25 seconds."""
    before = run(_writers, writes=False)
    began = time.monotonic()
    while before:
        if time.monotonic() - began > _PATIENCE:
            reason = "another transaction that has written goes on; the erasure is not done, `persist maintain` finishes it"
            raise StoreBusy(_PATIENCE, reason)
        sleep(_PAUSE)
        before &= run(_writers, writes=False)


def _writers(work: UnitOfWork) -> frozenset[str]:
    return operations_of(work.runtime.dialect).writers(work.select)
