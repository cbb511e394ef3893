"""Upkeep of checkpoints: threads that had no new checkpoint for long, unused values, and expired memories."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from sqlalchemy import Table, bindparam, delete, or_, select, update

from persist.db.changes.batch import Batch
from persist.db.dialects.interface import Problem, Severity
from persist.db.operations import erasing
from persist.db.operations.bounded_deletion import Condition
from persist.db.operations.pruning import AgedRows
from persist.db.operations.upkeep import Hangs, Upkeep, aged, erasable, exported
from persist.db.schema.base import floats32, json_object, optional, texts, texts_by_name
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.arguments import UNBOUNDED
from persist.errors import StoreCorrupt, named
from persist.framework_state.checkpoints.models import THREADS, memories, pending, pieces, states, threads, values, vectors
from persist.framework_state.checkpoints.schemas import Blob
from persist.framework_state.checkpoints.values import Digest, are_ranges, stored_spans, stored_versions

_S = states.c
_V = values.c
_P = pieces.c
_W = pending.c
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
    """Delete all that `keep` does not return but ancestors of kept ones; how many. A kept one's deleted parent becomes None."""
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


# What of a thread cannot be assembled without a row that is set aside: no foreign key says it.

_Found = Iterator[tuple[Table, Mapping[str, Any], str | None]]


@dataclass(slots=True)
class _Thread:
    """The readable parts of a thread's namespace. `unresolved`: by checkpoint, channels with an ancestor's value."""

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
            texts = versions if isinstance(versions, dict) else {}
            of_text = {name: version for name, version in texts.items() if isinstance(version, str)}
            for pair in of_text.items():
                self.users[pair].append(id)
            self.children[parent].append(id)
            channels = [name for name in partial if isinstance(name, str)] if isinstance(partial, list) else []
            self.unresolved[id] = {name for name in channels if (name, of_text.get(name)) not in stored}
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
    thread, position = _thread(work, row, memo), row["position"]
    for version, spans in thread.spans[row["channel"]]:
        if _is_within(position, spans):
            yield values, {**thread.key, "channel": row["channel"], "version": version}, None


def _is_within(position: Any, spans: Any) -> bool:
    ranges = spans if isinstance(spans, list) else []
    return any(
        isinstance(each, list)
        and len(each) == 2
        and all(type(end) is int for end in (position, *each))
        and each[0] <= position < each[1]
        for each in ranges
    )


def _with_value(work: UnitOfWork, row: Mapping[str, Any], memo: dict[Any, Any]) -> _Found:
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
    thread = _thread(work, row, memo)
    for id in thread.children[row["checkpoint_id"]]:
        if row.get("channel") is None or row["channel"] in thread.unresolved[id]:
            yield thread.state(id)


HANGING: Mapping[Table, Hangs] = {pieces: _with_piece, values: _with_value, states: _with_state, pending: _with_write}
"""By table, finds the rows that are useless without a given row."""


_M = memories.c


class _Within(erasing.Equal):
    """Selects the rows of a namespace and of all namespaces below it."""

    def __call__(self, values: erasing.Values) -> Condition:
        (column,) = self.columns
        # everything below a namespace sorts between its text plus "." and its text plus "/", the next character
        return or_(column.in_(values), *((column > f"{value}.") & (column < f"{value}/") for value in values))

    def matches(self, row: Mapping[str, Any], values: Collection[str]) -> bool:
        (column,) = self.columns
        name = row.get(str(column.key))
        return isinstance(name, str) and any(name == value or name.startswith(f"{value}.") for value in values)


# Ids grow, so a parent normally has a smaller one. Every circle has at least one checkpoint whose parent's id is not smaller.
_SUSPECTS = select(_S.thread_id, _S.namespace).where(_S.parent_id >= _S.id).distinct().order_by(_S.thread_id, _S.namespace)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """A finding for each circle of checkpoints, named by its smallest id."""
    suspects = work.found(_SUSPECTS, unreadable=OnUnreadable.LEAVE_OUT)
    for thread_id, namespace in suspects:
        steps = select(_S.id, _S.parent_id).where(_S.thread_id == thread_id, _S.namespace == namespace, _S.parent_id.is_not(None))
        rows: Iterable[Any] = work.found(steps, unreadable=OnUnreadable.LEAVE_OUT)
        for circle in _circles(dict(iter(rows))):
            message = (
                f"the checkpoint {named(circle[0])} is among its own ancestors ({len(circle)} in a circle): its "
                "DeltaChannels cannot be read; go on from a checkpoint that is not, or delete the thread."
            )
            yield Problem("checkpoint_circle", Severity.ERROR, f"thread {thread_id}", message)


def _circles(parents: Mapping[str, str]) -> list[list[str]]:
    circles, done = [], set[str]()
    for start in sorted(parents):
        path: dict[str, None] = {}
        current: str | None = start
        while current is not None and current not in done and current not in path:
            path[current] = None
            current = parents.get(current)
        if current in path:
            ids = list(path)
            circles.append(sorted(ids[ids.index(current) :]))
        done |= path.keys()
    return circles


# Values that lack what they consist of, and what stands in for a cell that the rest of its row says.

_CONTENTS = select(*values.primary_key.columns, _V.kind, _V.spans_json, _V.data.is_(None)).order_by(*values.primary_key.columns)
_POSITIONS = Statement(
    select(_P.position)
    .where(_P.thread_id == _in_thread, _P.namespace == param("namespace"), _P.channel == param("channel"))
    .order_by(_P.position),
    unreadable=OnUnreadable.LEAVE_OUT,
)


def incomplete(work: UnitOfWork) -> Iterator[tuple[Table, Mapping[str, Any], str]]:
    """Values without contents, and lists of which a piece is missing: no checkpoint with such a value can be read."""
    of, runs = dict[str, str](), list[list[int]]()
    rows: Iterable[Any] = work.found(_CONTENTS, unreadable=OnUnreadable.LEAVE_OUT)
    for thread_id, namespace, channel, version, kind, spans, empty in rows:
        key = {"thread_id": thread_id, "namespace": namespace, "channel": channel}
        if kind is None and of != key:
            of, runs = key, _runs(position for (position,) in work.rows(_POSITIONS, **key))
        if empty if kind is not None else not (are_ranges(spans) and all(_is_whole(span, runs) for span in spans)):
            lack = f"the value of {named(channel)} at {named(version)} lacks {'pieces' if kind is None else 'its bytes'}."
            yield values, {**key, "version": version}, lack


def _runs(positions: Iterable[int]) -> list[list[int]]:
    """The ranges [low, high) of ordered positions."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and runs[-1][1] == position:
            runs[-1][1] += 1
        else:
            runs.append([position, position + 1])
    return runs


def _is_whole(span: list[int], runs: list[list[int]]) -> bool:
    place = bisect_right(runs, span[0], key=itemgetter(0)) - 1
    return span[1] <= span[0] or (place >= 0 and span[1] <= runs[place][1])


def _digest_of_piece(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return {"digest": Digest((Blob(row["kind"], row["data"]),)).digest()} if {"kind", "data"} <= row.keys() else None


def _digest_of_value(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A list with any other digest is read, but not known again where the next one begins with it."""
    return {"digest": None if row.get("kind") is not None else row["quarantine"].encode()}


def _no_spans(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return {"spans_json": None} if row.get("kind") is not None and row.get("data") is not None else None


def _any_channel(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Each channel may need an ancestor's value; where one has a value of its own, nobody looks for another one."""
    versions = row.get("versions_json")
    return {"partial_json": sorted(versions)} if isinstance(versions, dict) else None


def _spans(value: Any) -> str | None:
    return None if are_ranges(value) else "no list of ranges"


UPKEEP = Upkeep(
    prunings=(
        # the newest checkpoints first: older ones are rebuilt from no newer one, and never lack a value
        aged(THREADS, threads.c.updated_at, order={states: (_S.id.desc(), _S.namespace)}),
        # by the instant at which they expire: memories that never do are kept
        AgedRows(memories, _M.expires_at, _M.namespace, _M.key),
    ),
    erasables=(
        erasable(THREADS, {erasing.SESSION: erasing.equal(threads.c.id)}),
        erasing.ErasableRows(
            memories,
            ("namespace",),
            {erasing.NAMESPACE: _Within((_M.namespace,))},
            (erasing.holding(vectors, "namespace"),),
            further=(erasing.SelectorPath(erasing.NAMESPACE, _Within((vectors.c.namespace,)), (vectors.c.namespace,)),),
            rooted=False,
        ),
    ),
    exports=(exported(THREADS, "thread"),),
    checkup=checkup,
    incomplete=incomplete,
    hanging=HANGING,
    stand_ins={
        pieces.c.digest: _digest_of_piece,
        values.c.digest: _digest_of_value,
        values.c.spans_json: _no_spans,
        states.c.partial_json: _any_channel,
    },
    shapes={
        states.c.metadata_json: json_object,
        states.c.versions_json: texts_by_name,
        states.c.partial_json: optional(texts),
        values.c.spans_json: optional(_spans),
        memories.c.value_json: json_object,
        vectors.c.embedding: floats32,
    },
)
