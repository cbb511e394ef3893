"""Findings of `persist doctor` in agents' tasks: parts of an artifact that is gone, so that the task cannot be read."""

from collections.abc import Iterator

from sqlalchemy import exists, select

from persist.agent_tasks.models import pieces
from persist.db.dialects.findings import Problem, Severity
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

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
    """A finding for each artifact of which there are only parts."""
    for task, position in work.found(_LOOSE, unreadable=OnUnreadable.LEAVE_OUT):
        message = f"its artifact {position:,} is gone, and parts of it are there, so that the task cannot be read: save it again."
        yield Problem("task_pieces", Severity.ERROR, f"agent task {task}", message)
