"""What may be wrong with threads: checkpoints whose parents lead back to them, so that nothing can be rebuilt from them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import select

from persist.checkpoints.models import states
from persist.db.spoilt import Spoilt
from persist.db.trouble import Severity, Trouble
from persist.db.work import Work
from persist.quoting import named

_S = states.c
# Ids grow, so a parent has a smaller one. Whatever the order of ids is, no circle is without a step that does not go down.
_SUSPECTS = select(_S.thread_id, _S.namespace).where(_S.parent_id >= _S.id).distinct().order_by(_S.thread_id, _S.namespace)


def checkup(work: Work) -> Iterator[Trouble]:
    """Circles of checkpoints, each named by its smallest id."""
    suspects = work.found(_SUSPECTS, spoilt=Spoilt.LEAVE_OUT)
    for thread_id, namespace in suspects:
        steps = select(_S.id, _S.parent_id).where(_S.thread_id == thread_id, _S.namespace == namespace, _S.parent_id.is_not(None))
        rows: Iterable[Any] = work.found(steps, spoilt=Spoilt.LEAVE_OUT)
        for circle in _circles(dict(iter(rows))):
            message = (
                f"the checkpoint {named(circle[0])} is among its own ancestors ({len(circle)} in a circle): its "
                "DeltaChannels cannot be read; go on from a checkpoint that is not, or delete the thread."
            )
            yield Trouble("checkpoint_circle", Severity.ERROR, f"thread {thread_id}", message)


def _circles(parents: Mapping[str, str]) -> list[list[str]]:
    """The ids of each circle, the smallest first."""
    circles, done = [], set[str]()
    for start in sorted(parents):
        path: dict[str, None] = {}
        at: str | None = start
        while at is not None and at not in done and at not in path:
            path[at] = None
            at = parents.get(at)
        if at in path:
            ids = list(path)
            circles.append(sorted(ids[ids.index(at) :]))
        done |= path.keys()
    return circles
