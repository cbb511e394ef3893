"""Unfinished erasures, in rows of `_meta`: what is going to be erased, and how far that is.

`erasure:<id>` has the selectors and the counts so far, `erasure:<id>:<number>` some of the things and how far their erasure is.
All of them are gone when the erasure is done.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from json import dumps, loads
from typing import Any

from sqlalchemy import bindparam, delete, select, update

from persist.db.dialects.findings import Problem, Severity
from persist.db.operations.erasing import Erased, Key
from persist.db.schema.base import table_of
from persist.db.schema.column_types import Label
from persist.db.schema.meta_table import Meta
from persist.db.statements.prepared import Row, Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.maintenance.erasure_logs import LogFolder
from persist.quoting import named

_M = table_of(Meta).c
SESSIONS = "session ids"
"""The kind of parts that hold the ids of all sessions that are erased, for their logs on the disk."""
_PREFIX = "erasure:"
_END = "erasure;"
"""What sorts behind every key that begins with the prefix."""
_key = bindparam("mark", type_=Label())
_ADD = Statement(table_of(Meta).insert())
_GET = Statement(select(_M.value).where(_M.key == _key))
_HOLD = Statement(select(_M.value).where(_M.key == _key).with_for_update())
_SET = Statement(update(table_of(Meta)).where(_M.key == _key).values(value=bindparam("content", type_=Label())))
_KEYS = Statement(
    select(_M.key).where(_M.key > bindparam("low", type_=Label()), _M.key < bindparam("high", type_=Label())).order_by(_M.key)
)
_REMOVE = Statement(delete(table_of(Meta)).where(_M.key == _key))


@dataclass(slots=True)
class Mark:
    """An erasure that has begun: what was asked for, and what it has done so far.

    logs       the folders in which the logs of erased sessions are to be deleted
    only_logs  whether nothing else is left to do
    """

    id: str
    selectors: dict[str, str]
    begun_at: str
    rows: dict[str, int] = field(default_factory=dict)
    events: int = 0
    files: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    logs: list[LogFolder] = field(default_factory=list)
    only_logs: bool = False

    def add(
        self, *, rows: Mapping[str, int] = Counter(), kept: Mapping[str, int] = Counter(), events: int = 0, files: int = 0
    ) -> None:
        """Count what was done."""
        self.rows = dict(Counter(self.rows) + Counter(rows))
        self.kept = dict(Counter(self.kept) + Counter(kept))
        self.events += events
        self.files += files


@dataclass(slots=True)
class Part:
    """Some things of one kind. `upto`: the last position of events about them, once they are deleted."""

    key: str
    kind: str
    things: list[Key]
    upto: int | None = None
    elsewhere: dict[str, tuple[tuple[str, ...], list[Key]]] = field(default_factory=dict)


def begin(work: UnitOfWork, mark: Mark, parts: Sequence[tuple[str, Sequence[Key]]]) -> None:
    """Write down what is going to be erased. A mark that is there already gets the further parts."""
    key = f"{_PREFIX}{mark.id}"
    if _read(work, key) is None:
        work.run(_ADD, key=key, value=_text(mark))
    else:
        work.run(_SET, mark=key, content=_text(mark))
    first = len(work.rows(_KEYS, low=f"{key}:", high=f"{key};"))
    for number, (kind, things) in enumerate(parts, first):
        part = Part(f"{key}:{number:09}", kind, list(things))
        work.run(_ADD, key=part.key, value=_text(part))


def marks(work: UnitOfWork) -> list[Mark]:
    """The unfinished erasures, in the order in which they began."""
    keys = [key for (key,) in work.rows(_KEYS, low=_PREFIX, high=_END) if ":" not in key.removeprefix(_PREFIX)]
    return [mark for key in keys if (mark := mark_of(work, key.removeprefix(_PREFIX))) is not None]


def mark_of(work: UnitOfWork, id: str) -> Mark | None:
    """The erasure with this id; None if it is done."""
    row = _read(work, f"{_PREFIX}{id}")
    if row is None:
        return None
    found: dict[str, Any] = loads(row[0])
    return Mark(**{**found, "logs": [LogFolder(*folder) for folder in found.get("logs", ())]})


def keep(work: UnitOfWork, mark: Mark) -> None:
    """Store how far the erasure is."""
    work.run(_SET, mark=f"{_PREFIX}{mark.id}", content=_text(mark))


def part_keys(work: UnitOfWork, id: str) -> list[str]:
    """The keys of an erasure's parts, in the order in which they are erased."""
    return [key for (key,) in work.rows(_KEYS, low=f"{_PREFIX}{id}:", high=f"{_PREFIX}{id};")]


def part_of(work: UnitOfWork, key: str) -> Part | None:
    """A part of an erasure; None if the erasure is done."""
    row = _read(work, key)
    if row is None:
        return None
    found: dict[str, Any] = loads(row[0])
    found["things"] = [tuple(key) for key in found["things"]]
    found["elsewhere"] = {
        table: (tuple(columns), [tuple(key) for key in keys]) for table, (columns, keys) in found["elsewhere"].items()
    }
    return Part(**found)


def deleted(work: UnitOfWork, part: Part, erased: Erased, upto: int) -> None:
    """Note that the rows of a part are deleted."""
    part.upto, part.elsewhere = upto, erased.elsewhere
    work.run(_SET, mark=part.key, content=_text(part))


def finish(
    work: UnitOfWork, id: str, *, parts: Sequence[str], logs: Collection[LogFolder], rest: bool
) -> tuple[Mark | None, bool]:
    """Remove an erasure of which these parts are done and the logs in these folders; or note that the `rest` is done.

    Returns the erasure, None if somebody else removed it, and whether another call has added to it since then.
    """
    mark = mark_of(work, id)
    if mark is None:
        return None, False
    keys = part_keys(work, id)
    if set(keys) - set(parts):
        return mark, True
    if set(mark.logs) - set(logs):
        mark.only_logs = rest
        keep(work, mark)
        return mark, False
    for key in keys:
        work.run(_REMOVE, mark=key)
    work.run(_REMOVE, mark=f"{_PREFIX}{id}")
    return mark, False


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """Find erasures that were interrupted."""
    for mark in marks(work):
        left = "is not done; run `persist maintain`."
        if mark.only_logs:
            folders = " and ".join(named(folder.path) for folder in mark.logs)
            left = f"session logs are left in {folders}; run `persist maintain` where that folder is reached."
        message = f"it began at {datetime.fromisoformat(mark.begun_at):%Y-%m-%d %H:%M} UTC and {left}"
        yield Problem("erasure_unfinished", Severity.WARNING, f"erasure {mark.id}", message)


def _read(work: UnitOfWork, key: str) -> Row | None:
    """The row, held against other writers if this transaction writes."""
    return work.row(_HOLD if work.writable else _GET, mark=key)


def _text(content: Mark | Part) -> str:
    return dumps(asdict(content))
