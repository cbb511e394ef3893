"""What of a thread cannot be assembled without a row that is set aside: no foreign key says it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table, select

from persist.checkpoints.models import pending, pieces, states, values
from persist.db.operations.upkeep import Hangs
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

_S, _V, _W = states.c, values.c, pending.c
_Found = Iterator[tuple[Table, Mapping[str, Any], str | None]]


@dataclass(slots=True)
class _Thread:
    """What the checkpoints of a namespace of a thread are made of, as far as it can be read.

    `unresolved`: by the id of a checkpoint, its channels whose value is an ancestor's and what was written since.
    """

    key: dict[str, Any]
    spans: dict[str, list[tuple[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    users: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    children: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    unresolved: dict[str, set[str]] = field(default_factory=dict)

    def read(self, work: UnitOfWork) -> "_Thread":
        leave_out = OnUnreadable.LEAVE_OUT
        of_values = select(_V.channel, _V.version, _V.spans_json).filter_by(**self.key)
        stored = set()
        rows: Any = work.found(of_values, unreadable=leave_out)
        for channel, version, spans in rows:
            stored.add((channel, version))
            self.spans[channel].append((version, spans))
        rows = work.found(
            select(_S.id, _S.parent_id, _S.versions_json, _S.partial_json).filter_by(**self.key), unreadable=leave_out
        )
        for id, parent, versions, partial in rows:
            versions = versions if isinstance(versions, dict) else {}
            for pair in versions.items():
                self.users[pair].append(id)
            self.children[parent].append(id)
            self.unresolved[id] = {name for name in partial or () if (name, versions.get(name)) not in stored}
        return self

    def state(self, id: str, column: str | None = None) -> tuple[Table, Mapping[str, Any], str | None]:
        return states, {**self.key, "id": id}, column


def _thread(work: UnitOfWork, row: Mapping[str, Any], memo: dict[Any, Any]) -> _Thread:
    key = {name: row[name] for name in ("thread_id", "namespace")}
    place = (states, *key.values())
    if place not in memo:
        memo[place] = _Thread(key).read(work)
    found: _Thread = memo[place]
    return found


def _with_piece(work: UnitOfWork, row: Mapping[str, Any], memo: dict[Any, Any]) -> _Found:
    """The lists that contain the piece."""
    thread, position = _thread(work, row, memo), row["position"]
    for version, spans in thread.spans[row["channel"]]:
        if isinstance(spans, list) and any(low <= position < high for low, high in spans):
            yield values, {**thread.key, "channel": row["channel"], "version": version}, None


def _with_value(work: UnitOfWork, row: Mapping[str, Any], memo: dict[Any, Any]) -> _Found:
    """The checkpoints with the value."""
    thread = _thread(work, row, memo)
    for id in thread.users[row["channel"], row["version"]]:
        yield thread.state(id)


def _with_state(work: UnitOfWork, row: Mapping[str, Any], memo: dict[Any, Any]) -> _Found:
    """What was written after the checkpoint, and checkpoints that are rebuilt from it; others lose their parent."""
    thread = _thread(work, row, memo)
    of_writes = select(_W.task_id, _W.idx).filter_by(**thread.key, checkpoint_id=row["id"])
    rows: Any = work.found(of_writes, unreadable=OnUnreadable.LEAVE_OUT)
    for task_id, idx in rows:
        yield pending, {**thread.key, "checkpoint_id": row["id"], "task_id": task_id, "idx": idx}, None
    for id in thread.children[row["id"]]:
        yield thread.state(id, None if thread.unresolved[id] else "parent_id")


def _with_write(work: UnitOfWork, row: Mapping[str, Any], memo: dict[Any, Any]) -> _Found:
    """The checkpoints behind it that are rebuilt with it."""
    thread = _thread(work, row, memo)
    for id in thread.children[row["checkpoint_id"]]:
        if row.get("channel") is None or row["channel"] in thread.unresolved[id]:
            yield thread.state(id)


HANGING: Mapping[Table, Hangs] = {pieces: _with_piece, values: _with_value, states: _with_state, pending: _with_write}
"""By table, what is of no use without a row of it."""
