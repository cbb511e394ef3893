"""Deleting checkpoints of a thread together with their writes, unused versions of values, and unused pieces of lists."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, select, update

from persist.checkpoints.models import pending, pieces, states, threads, values
from persist.checkpoints.values import stored_spans, stored_versions
from persist.db.changes.batch import Batch
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.counts import UNBOUNDED
from persist.errors import StoreCorrupt
from persist.quoting import named

_S, _V, _P, _W = states.c, values.c, pieces.c, pending.c

_LOCK = Statement(select(threads.c.id).where(threads.c.id == param("thread_id")).with_for_update())
_STEPS = Statement(
    select(_S.namespace, _S.id, _S.parent_id, _S.run_id, _S.versions_json, _S.partial_json).where(
        _S.thread_id == param("thread_id")
    )
)
_VALUES = Statement(select(_V.namespace, _V.channel, _V.version, _V.spans_json).where(_V.thread_id == param("thread_id")))
_in_thread = param("thread_id")
_DROP_STATE = Statement(
    delete(states).where(_S.thread_id == _in_thread, _S.namespace == param("namespace"), _S.id == param("row_id"))
)
_DROP_WRITES = Statement(
    delete(pending).where(_W.thread_id == _in_thread, _W.namespace == param("namespace"), _W.checkpoint_id == param("row_id"))
)
_CLEAR_PARENT = Statement(
    update(states)
    .where(_S.thread_id == param("in_thread"), _S.namespace == param("in_namespace"), _S.id == param("row_id"))
    .values(parent_id=None)
)
_DROP_VALUE = Statement(
    delete(values).where(
        _V.thread_id == _in_thread,
        _V.namespace == param("namespace"),
        _V.channel == param("channel"),
        _V.version == param("version"),
    )
)
_DROP_PIECES = Statement(
    delete(pieces).where(
        _P.thread_id == _in_thread,
        _P.namespace == param("namespace"),
        _P.channel == param("channel"),
        _P.position >= bindparam("low", type_=Int64()),
        _P.position < bindparam("high", type_=Int64()),
    )
)


@dataclass(frozen=True, slots=True)
class Step:
    """A checkpoint as far as pruning needs it: its parent, its run, and the values it depends on."""

    namespace: str
    id: str
    parent_id: str | None
    run_id: str | None
    versions: dict[str, str]
    partial: list[str] | None


StepsById = dict[tuple[str, str], Step]


def trim(work: UnitOfWork, thread_id: str, keep: Callable[[Iterable[Step]], Iterable[Step]]) -> int:
    """Delete the checkpoints that `keep` does not return, except ancestors that a kept one is rebuilt from; the number deleted.

    A kept checkpoint whose parent is deleted gets `parent_id` None.
    """
    with work.batch() as batch:
        locked = batch.row(_LOCK, thread_id=thread_id)
        found_steps, found_values = batch.rows(_STEPS, thread_id=thread_id), batch.rows(_VALUES, thread_id=thread_id)
    if locked.result is None:
        return 0
    steps = {(row[0], row[1]): _step(thread_id, row) for row in found_steps.result}
    stored = {tuple(key): None if spans is None else stored_spans(thread_id, spans) for *key, spans in found_values.result}
    kept = {(step.namespace, step.id): step for step in keep(steps.values())}
    for step in list(kept.values()):
        for ancestor in _rebuilt_from(step, steps, stored.keys()):
            kept[ancestor.namespace, ancestor.id] = ancestor
    deleted = [{"thread_id": thread_id, "namespace": namespace, "row_id": id} for namespace, id in steps.keys() - kept.keys()]
    if not deleted:
        return 0
    with work.batch() as batch:
        batch.run_many(_DROP_WRITES, deleted)
        batch.run_many(_DROP_STATE, deleted)
        for step in kept.values():
            if step.parent_id is not None and (step.namespace, step.parent_id) not in kept:
                batch.run(_CLEAR_PARENT, in_thread=thread_id, in_namespace=step.namespace, row_id=step.id)
        _drop_values(batch, thread_id, kept, stored)
    return len(deleted)


def _step(thread_id: str, row: Row) -> Step:
    """The Step of a row. Raises StoreCorrupt if the row does not say which values it depends on."""
    step = Step(*row)
    partial: Any = [] if step.partial is None else step.partial
    if not isinstance(partial, list) or {type(name) for name in (step.id, *partial)} != {str}:
        raise StoreCorrupt(f"thread {named(thread_id)}", f"the checkpoint {named(step.id)} is none.")
    stored_versions(thread_id, step.versions)
    return step


def _rebuilt_from(step: Step, steps: StepsById, stored: Collection[Any]) -> Iterable[Step]:
    """The ancestors needed to rebuild the step's partial channels: back to the nearest with a stored value for each."""
    unresolved = _unresolved(step, set(step.partial or ()), stored)
    ancestor: Step | None = step
    visited = {step.id}
    while unresolved and ancestor is not None and ancestor.parent_id is not None and ancestor.parent_id not in visited:
        ancestor = steps.get((ancestor.namespace, ancestor.parent_id))
        if ancestor is not None:
            visited.add(ancestor.id)
            yield ancestor
            unresolved = _unresolved(ancestor, unresolved, stored)


def _unresolved(step: Step, channels: set[str], stored: Collection[Any]) -> set[str]:
    return {name for name in channels if (step.namespace, name, step.versions.get(name)) not in stored}


def _drop_values(batch: Batch, thread_id: str, kept: StepsById, stored: dict[Any, list[list[int]] | None]) -> None:
    used = {(step.namespace, channel, version) for step in kept.values() for channel, version in step.versions.items()}
    lists: defaultdict[tuple[str, str], list[list[int]]] = defaultdict(list)
    deleted = []
    for (namespace, channel, version), spans in stored.items():
        if spans is not None:
            lists[namespace, channel] += spans if (namespace, channel, version) in used else []
        if (namespace, channel, version) not in used:
            deleted.append({"thread_id": thread_id, "namespace": namespace, "channel": channel, "version": version})
    batch.run_many(_DROP_VALUE, deleted)
    batch.run_many(
        _DROP_PIECES,
        [
            {"thread_id": thread_id, "namespace": namespace, "channel": channel, "low": low, "high": high}
            for (namespace, channel), spans in lists.items()
            for low, high in _gaps(spans)
        ],
    )


def _gaps(spans: list[list[int]]) -> Iterable[tuple[int, int]]:
    """The ranges of positions that no given range contains; the last one ends at UNBOUNDED."""
    free = 0
    for low, high in sorted(spans):
        if low > free:
            yield free, low
        free = max(free, high)
    yield free, UNBOUNDED
