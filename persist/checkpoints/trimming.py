"""What a thread needs no more when checkpoints of it go: their writes, versions that none is at, pieces of no list."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, select, update

from persist.checkpoints.models import pending, pieces, states, threads, values
from persist.checkpoints.values import stored_spans, stored_versions
from persist.db.hot import Hot, Row, param
from persist.db.types import Whole
from persist.db.work import Work
from persist.errors import StoreCorrupt
from persist.quoting import named

_S, _V, _P, _W = states.c, values.c, pieces.c, pending.c
_TOP = 2**62

_LOCK = Hot(select(threads.c.id).where(threads.c.id == param("thread_id")).with_for_update())
_STEPS = Hot(
    select(_S.namespace, _S.id, _S.parent_id, _S.run_id, _S.versions_json, _S.partial_json).where(
        _S.thread_id == param("thread_id")
    )
)
_VALUES = Hot(select(_V.namespace, _V.channel, _V.version, _V.spans_json).where(_V.thread_id == param("thread_id")))
_in_thread = param("thread_id")
_DROP_STATE = Hot(delete(states).where(_S.thread_id == _in_thread, _S.namespace == param("namespace"), _S.id == param("row_id")))
_DROP_WRITES = Hot(
    delete(pending).where(_W.thread_id == _in_thread, _W.namespace == param("namespace"), _W.checkpoint_id == param("row_id"))
)
_ORPHAN = Hot(
    update(states)
    .where(_S.thread_id == param("in_thread"), _S.namespace == param("in_namespace"), _S.id == param("row_id"))
    .values(parent_id=None)
)
_DROP_VALUE = Hot(
    delete(values).where(
        _V.thread_id == _in_thread,
        _V.namespace == param("namespace"),
        _V.channel == param("channel"),
        _V.version == param("version"),
    )
)
_DROP_PIECES = Hot(
    delete(pieces).where(
        _P.thread_id == _in_thread,
        _P.namespace == param("namespace"),
        _P.channel == param("channel"),
        _P.position >= bindparam("low", type_=Whole()),
        _P.position < bindparam("high", type_=Whole()),
    )
)


@dataclass(frozen=True, slots=True)
class Step:
    """What decides whether a checkpoint goes, and what it leans on."""

    namespace: str
    id: str
    parent_id: str | None
    run_id: str | None
    versions: dict[str, str]
    partial: list[str] | None


Steps = dict[tuple[str, str], Step]


def trim(work: Work, thread_id: str, keep: Callable[[Iterable[Step]], Iterable[Step]]) -> int:
    """Delete the checkpoints of a thread that `keep` leaves out, but for ancestors that a kept one is rebuilt from; how many.

    A kept checkpoint whose parent goes has none any more.
    """
    if work.row(_LOCK, thread_id=thread_id) is None:
        return 0
    steps = {(row[0], row[1]): _step(thread_id, row) for row in work.rows(_STEPS, thread_id=thread_id)}
    stored = {
        tuple(key): None if spans is None else stored_spans(thread_id, spans)
        for *key, spans in work.rows(_VALUES, thread_id=thread_id)
    }
    kept = {(step.namespace, step.id): step for step in keep(steps.values())}
    for step in list(kept.values()):
        for ancestor in _rebuilt_from(step, steps, stored.keys()):
            kept[ancestor.namespace, ancestor.id] = ancestor
    gone = [{"thread_id": thread_id, "namespace": namespace, "row_id": id} for namespace, id in steps.keys() - kept.keys()]
    if not gone:
        return 0
    work.run_many(_DROP_WRITES, gone)
    work.run_many(_DROP_STATE, gone)
    for step in kept.values():
        if step.parent_id is not None and (step.namespace, step.parent_id) not in kept:
            work.run(_ORPHAN, in_thread=thread_id, in_namespace=step.namespace, row_id=step.id)
    _drop_values(work, thread_id, kept, stored)
    return len(gone)


def _step(thread_id: str, row: Row) -> Step:
    """A row; StoreCorrupt for one that nobody can tell what it leans on."""
    step = Step(*row)
    partial: Any = [] if step.partial is None else step.partial
    if not isinstance(partial, list) or {type(name) for name in (step.id, *partial)} != {str}:
        raise StoreCorrupt(f"thread {named(thread_id)}", f"the checkpoint {named(step.id)} is none.")
    stored_versions(thread_id, step.versions)
    return step


def _rebuilt_from(step: Step, steps: Steps, stored: Collection[Any]) -> Iterable[Step]:
    """The ancestors back to those that hold what its partial channels grew from."""
    open_ = _open(step, set(step.partial or ()), stored)
    at: Step | None = step
    met = {step.id}
    while open_ and at is not None and at.parent_id is not None and at.parent_id not in met:
        at = steps.get((at.namespace, at.parent_id))
        if at is not None:
            met.add(at.id)
            yield at
            open_ = _open(at, open_, stored)


def _open(step: Step, channels: set[str], stored: Collection[Any]) -> set[str]:
    return {name for name in channels if (step.namespace, name, step.versions.get(name)) not in stored}


def _drop_values(work: Work, thread_id: str, kept: Steps, stored: dict[Any, list[list[int]] | None]) -> None:
    used = {(step.namespace, channel, version) for step in kept.values() for channel, version in step.versions.items()}
    lists: defaultdict[tuple[str, str], list[list[int]]] = defaultdict(list)
    gone = []
    for (namespace, channel, version), spans in stored.items():
        if spans is not None:
            lists[namespace, channel] += spans if (namespace, channel, version) in used else []
        if (namespace, channel, version) not in used:
            gone.append({"thread_id": thread_id, "namespace": namespace, "channel": channel, "version": version})
    work.run_many(_DROP_VALUE, gone)
    work.run_many(
        _DROP_PIECES,
        [
            {"thread_id": thread_id, "namespace": namespace, "channel": channel, "low": low, "high": high}
            for (namespace, channel), spans in lists.items()
            for low, high in _between(spans)
        ],
    )


def _between(spans: list[list[int]]) -> Iterable[tuple[int, int]]:
    """The positions that no range holds."""
    free = 0
    for low, high in sorted(spans):
        if low > free:
            yield free, low
        free = max(free, high)
    yield free, _TOP
