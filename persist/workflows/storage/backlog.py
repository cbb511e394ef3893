"""How many runs a worker could claim now, and since when the oldest of them waits."""

from datetime import datetime

from sqlalchemy import func, select

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.workflows.models import IS_DELAYED, IS_READY, runs

MOST = 10_000
"""The most runs that are counted, so that a long queue costs no more than that."""

_R = runs.c
# one query per partial index: none of them serves both conditions
_READY = select(_R.queued_at.label("since")).where(IS_READY).limit(MOST).subquery("ready")
_DUE = select(_R.not_before.label("since")).where(IS_DELAYED, _R.not_before <= param("now")).limit(MOST).subquery("due")
_COUNTED = [
    Statement(select(func.count(), func.min(some.c.since)).select_from(some), unreadable=OnUnreadable.LEAVE_OUT)
    for some in (_READY, _DUE)
]


def backlog(work: UnitOfWork) -> tuple[int, datetime | None]:
    """Return the number of runs, at most `MOST`, and since when the oldest of those that were counted could be claimed."""
    with work.batch() as batch:
        ready, due = batch.rows(_COUNTED[0]), batch.rows(_COUNTED[1], now=work.now())
    counted = [*ready.result, *due.result]
    since = [row[1] for row in counted if row[1] is not None]
    return min(MOST, sum(row[0] for row in counted)), min(since, default=None)
