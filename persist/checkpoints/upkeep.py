"""Upkeep of checkpoints: threads that had no new checkpoint for long, and expired memories.

A person's are the threads with the id of a session, and the memories of a namespace and those below it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import or_, select

from persist.checkpoints.assembling import HANGING
from persist.checkpoints.models import THREADS, memories, states, threads, values, vectors
from persist.db.dialects.findings import Problem, Severity
from persist.db.operations.bounded_deletion import Condition
from persist.db.operations.erasing import NAMESPACE, SESSION, ErasableRows, holding
from persist.db.operations.erasing_ways import Equal, Values, Way, equal
from persist.db.operations.pruning import AgedRows
from persist.db.operations.upkeep import Upkeep, aged, erasable, exported
from persist.db.schema.shapes import floats32, json_object, optional, texts, texts_by_name
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.quoting import named

_M = memories.c


class _Within(Equal):
    """Selects the rows of a namespace and of all namespaces below it."""

    def __call__(self, values: Values) -> Condition:
        (column,) = self.columns
        # everything below a namespace sorts between its text plus "." and its text plus "/", the next character
        return or_(column.in_(values), *((column > f"{value}.") & (column < f"{value}/") for value in values))

    def matches(self, row: Mapping[str, Any], values: Collection[str]) -> bool:
        (column,) = self.columns
        name = row.get(str(column.key))
        return isinstance(name, str) and any(name == value or name.startswith(f"{value}.") for value in values)


_S = states.c
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
    """The ids of each circle, the smallest first."""
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


def _spans(value: Any) -> str | None:
    fits = isinstance(value, list) and all(isinstance(span, list) and [type(end) for end in span] == [int, int] for span in value)
    return None if fits else "no list of ranges"


UPKEEP = Upkeep(
    prunings=(
        # the newest checkpoints first: older ones are rebuilt from no newer one, and never lack a value
        aged(THREADS, threads.c.updated_at, order={states: (_S.id.desc(), _S.namespace)}),
        # by the instant at which they expire: memories that never do are kept
        AgedRows(memories, _M.expires_at, _M.namespace, _M.key),
    ),
    erasables=(
        erasable(THREADS, {SESSION: equal(threads.c.id)}),
        ErasableRows(
            memories,
            ("namespace",),
            {NAMESPACE: _Within((_M.namespace,))},
            (holding(vectors, "namespace"),),
            further=(Way(NAMESPACE, _Within((vectors.c.namespace,)), (vectors.c.namespace,)),),
            rooted=False,
        ),
    ),
    exports=(exported(THREADS, "thread"),),
    checkup=checkup,
    hanging=HANGING,
    shapes={
        states.c.versions_json: texts_by_name,
        states.c.partial_json: optional(texts),
        values.c.spans_json: optional(_spans),
        memories.c.value_json: json_object,
        vectors.c.embedding: floats32,
    },
)
