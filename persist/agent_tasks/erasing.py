"""Erasing agents' tasks: those of an owner, or of one context, and the webhooks that watch them."""

from persist.agent_tasks.models import pieces, tasks, webhooks
from persist.db.operations.erasing import OWNER, SESSION, Erasable, ErasableRows, found_by, holding
from persist.db.operations.erasing_ways import Lead, Together, equal

_T, _W = tasks.c, webhooks.c
_TASK = "agent task"
"""Finds what watches a task, by its owner and its id."""

ERASABLES: tuple[Erasable, ...] = (
    ErasableRows(
        webhooks,
        ("task_id", "owner", "id"),
        {OWNER: equal(_W.owner), _TASK: Together((_W.owner, _W.task_id))},
        own_streams=False,
        rooted=False,
    ),
    ErasableRows(
        tasks,
        ("id",),
        {OWNER: equal(_T.owner), SESSION: equal(_T.id, _T.context_id)},
        (holding(pieces, "task"),),
        leading=(Lead((_T.id,), found_by(_TASK), (_T.owner, _T.task_id)),),
    ),
)
