"""Upkeep of agents' tasks: those that ended go by age, webhooks, whose secrets are not exported, once their task is gone."""

from collections.abc import Iterator

from sqlalchemy import exists, select, true

from persist.db.dialects.interface import Problem, Severity
from persist.db.operations import erasing
from persist.db.operations.pruning import AgedRows, Orphaned
from persist.db.operations.upkeep import Aggregate, Upkeep, aged, erasable, exported
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.framework_state.agent_tasks.models import pieces, tasks, webhooks

_T, _W = tasks.c, webhooks.c
_TASK = "agent task"
"""Finds what watches a task, by its owner and its id."""
_tasks = Aggregate(tasks)
TASKS = aged(
    _tasks,
    _T.updated_at,
    may_go=_T.final.is_(true()),
    # the parts of an artifact before the artifact, whose part is -1: a task with parts alone could not be read
    order={pieces: (pieces.c.part.desc(), pieces.c.kind, pieces.c.position)},
)
WEBHOOKS = AgedRows(
    webhooks,
    _W.updated_at,
    _W.task_id,
    _W.owner,
    _W.id,
    orphaned=Orphaned(TASKS, lambda among: ~exists().where(_T.owner == _W.owner, _T.task_id == _W.task_id, among)),
)
_P = pieces.c
_whole = pieces.alias("whole")
_its_artifact = exists().where(
    _whole.c.task == _P.task, _whole.c.kind == _P.kind, _whole.c.position == _P.position, _whole.c.part == -1
)
_LOOSE = (
    select(_P.task, _P.position)
    .where(_P.kind == "artifact", _P.part >= 0, ~_its_artifact)
    .distinct()
    .order_by(_P.task, _P.position)
)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """A finding for each artifact that is gone while parts of it are stored."""
    for task, position in work.found(_LOOSE, unreadable=OnUnreadable.LEAVE_OUT):
        message = f"its artifact {position:,} is gone, and parts of it are there, so that the task cannot be read: save it again."
        yield Problem("task_pieces", Severity.ERROR, f"agent task {task}", message)


UPKEEP = Upkeep(
    prunings=(TASKS, WEBHOOKS),
    erasables=(
        erasing.ErasableRows(
            webhooks,
            ("task_id", "owner", "id"),
            {erasing.OWNER: erasing.equal(_W.owner), _TASK: erasing.EqualTuple((_W.owner, _W.task_id))},
            own_streams=False,
            rooted=False,
        ),
        erasable(
            _tasks,
            {erasing.OWNER: erasing.equal(_T.owner), erasing.SESSION: erasing.equal(_T.id, _T.context_id)},
            leading=(erasing.Lead((_T.id,), erasing.found_by(_TASK), (_T.owner, _T.task_id)),),
        ),
    ),
    exports=(exported(_tasks, "agent task"),),
    checkup=checkup,
)
