"""Reading and locking the row of a run, and refusing writes that no lease covers."""

from datetime import datetime

from sqlalchemy import null, select, update

from persist.db.changes.batch import Pending
from persist.db.dialects.event_log import RUNS
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.errors import InvalidValue, LeaseLost
from persist.workflows.models import runs
from persist.workflows.schemas import Lease, WorkflowRun
from persist.workflows.transitions import TERMINAL

_R = runs.c
RUN = Values(WorkflowRun, runs)
GET_RUN = Statement(select(*RUN.columns).where(_R.id == param("row_id")))
LOCK_RUN = Statement(select(*RUN.columns).where(_R.id == param("row_id")).with_for_update())

_set_status = update(runs).where(_R.id == param("row_id")).values(status=param("to"), updated_at=param("at"))
NO_LEASE = {"lease_owner": null(), "lease_expires_at": null()}
"""The columns of a run that nobody holds."""
SET_STATUS, LET_GO = Statement(_set_status), Statement(_set_status.values(NO_LEASE))
"""SET_STATUS changes the status alone; after LET_GO the run's worker holds it no longer, either."""


def find_run(work: UnitOfWork, id: str, *, lock: bool = False) -> WorkflowRun | None:
    """The run, with `lock` locked against other writers; None if there is none."""
    return RUN.optional(work.row(LOCK_RUN if lock else GET_RUN, row_id=work.label("id", id)))


def get_run(work: UnitOfWork, id: str, *, lock: bool = False) -> WorkflowRun:
    """The run as `find_run` reads it. Raises NotFound if there is none."""
    return found_run(work.row(LOCK_RUN if lock else GET_RUN, row_id=work.label("id", id)), id)


def found_run(row: Row | None, id: str) -> WorkflowRun:
    """The run in a row that was looked for. Raises NotFound if there is none."""
    return RUN.found(row, "workflow run", id)


def written_run(row: Pending[Row | None]) -> WorkflowRun:
    """The run whose row a batch has read after it wrote it, under the row's lock."""
    assert row.result is not None
    return RUN(row.result)


def announce_claimable(work: UnitOfWork, run: WorkflowRun) -> None:
    """Wake idle workers after the commit: the run may be claimed."""
    if not is_unreadable(run.workflow_name):
        work.announce(RUNS, run.workflow_name)


def held_run(work: UnitOfWork, id: str, lease: Lease | None) -> WorkflowRun:
    """Lock and return the run for a write by this caller. Raises NotFound or LeaseLost."""
    run = get_run(work, id, lock=True)
    check_hold(run, lease, work.now())
    return run


def is_live(run: WorkflowRun, now: datetime) -> bool:
    """Whether a worker holds the run with a lease that has not expired."""
    return run.lease_owner is not None and run.lease_expires_at is not None and run.lease_expires_at > now


def check_hold(run: WorkflowRun, lease: Lease | None, now: datetime) -> None:
    """Raises LeaseLost for a write under a lease that is over, or without one on a run that a worker holds.

    An unexpired lease on a run that has ended passes: the transition table then decides about the write.
    """
    if lease is None:
        if is_live(run, now):
            raise LeaseLost(run.id, None, f"worker {run.lease_owner!r} holds it; write with its lease, or cancel the run.")
        return
    if not isinstance(lease, Lease):
        raise InvalidValue("lease", f"expected a Lease, got {type(lease).__name__}.")
    if lease.run_id != run.id:
        raise InvalidValue("lease", f"it is a lease on workflow run {lease.run_id!r}, not on {run.id!r}.")
    if lease.token != run.lease_token:
        raise LeaseLost(run.id, lease.token, "the lease is lost: the run was claimed again or cancelled since.")
    if run.status in TERMINAL and lease.expires_at > now:
        return
    if run.lease_owner != lease.worker or not is_live(run, now):
        raise LeaseLost(run.id, lease.token, "the lease has expired or was released; claim the run again.")
