"""A run waits for its children: it is paused and released, and the end of the last one lets it go on (storage.families)."""

from sqlalchemy import func, select, update

from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice
from persist.db.values.frozen import construct
from persist.workflows.family_values import Children, JoinUntil
from persist.workflows.models import IS_CHILD, runs
from persist.workflows.schemas import UNFINISHED, Lease, RunStatus
from persist.workflows.storage.run_rows import LOCK_RUN, NO_LEASE, check_hold, found_run
from persist.workflows.transitions import check_transition
from persist.workflows.verbs import limiting
from persist.workflows.verbs.leases import given_lease
from persist.workflows.verbs.recovery import fail_executions_of_run

_R = runs.c
_COUNTS = Statement(select(_R.status, func.count()).where(IS_CHILD, _R.parent_run_id == param("parent")).group_by(_R.status))
_JOIN = Statement(
    update(runs)
    .where(_R.id == param("row_id"))
    .values(
        status=RunStatus.PAUSED,
        join_until=param("goal"),
        **NO_LEASE,
        updated_at=param("at"),
    )
)


def join(work: UnitOfWork, lease: Lease, until: str) -> Children | None:
    """See Runs.join."""
    goal = check_choice("until", until, JoinUntil)
    run_id, now = given_lease(lease).run_id, work.now()
    with work.batch() as batch:
        locked = batch.row(LOCK_RUN, row_id=run_id)
        counted = batch.rows(_COUNTS, parent=run_id)
    run = found_run(locked.result, run_id)
    check_hold(run, lease, now)
    children = _children(counted.result)
    if not any(status in children.by_status for status in UNFINISHED) or (goal is JoinUntil.FIRST_FAILURE and children.failed):
        return children
    check_transition(run.id, run.status, RunStatus.PAUSED)
    with work.batch(last=True) as batch:
        fail_executions_of_run(work, batch, run, "stale: the run waits for its children")
        batch.run(_JOIN, row_id=run.id, goal=goal, at=now)
    limiting.announce_freed(work, run)
    return None


def _children(rows: list[Row]) -> Children:
    by_status = {str(status): int(count) for status, count in rows}
    return construct(Children, {"total": sum(by_status.values()), "by_status": by_status})
