"""Pruning of agents' tasks: tasks that ended and were not saved for long, and webhooks of tasks that are gone."""

from sqlalchemy import exists, true

from persist.agent_tasks.models import pieces, tasks, webhooks
from persist.db.operations.bounded_deletion import Below
from persist.db.operations.pruning import AgedRows, Orphaned, Pruning

_T, _W = tasks.c, webhooks.c

TASKS = AgedRows(
    tasks,
    _T.updated_at,
    _T.id,
    may_go=_T.final.is_(true()),
    below=(
        # the parts of an artifact before the artifact, whose part is -1: a task with parts alone could not be read
        Below(pieces, lambda ids: pieces.c.task.in_(ids), order=(pieces.c.part.desc(), pieces.c.kind, pieces.c.position)),
    ),
)

WEBHOOKS = AgedRows(
    webhooks,
    _W.updated_at,
    _W.task_id,
    _W.owner,
    _W.id,
    orphaned=Orphaned(TASKS, lambda among: ~exists().where(_T.owner == _W.owner, _T.task_id == _W.task_id, among)),
)

PRUNINGS: tuple[Pruning, ...] = (TASKS, WEBHOOKS)
