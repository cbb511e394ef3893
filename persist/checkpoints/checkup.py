"""Findings of `persist doctor` in threads: checkpoints that are their own ancestors, so that nothing can be rebuilt from them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import select

from persist.checkpoints.models import states
from persist.db.dialects.findings import Problem, Severity
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.quoting import named

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
