"""What the end of a worker's work on a run means: the run succeeds, or waits at its gates."""

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.workflows.schemas import Lease, RunStatus, WorkflowRun
from persist.workflows.storage.run_rows import check_hold, get_run
from persist.workflows.transitions import TERMINAL
from persist.workflows.verbs import finishing
from persist.workflows.verbs.leases import clear_lease, given_lease


def complete(work: UnitOfWork, lease: Lease) -> WorkflowRun:
    """See Runs.complete."""
    ended = finishing.complete(work, given_lease(lease))
    if ended is not None:
        return ended
    run = get_run(work, lease.run_id, lock=True)
    if run.lease_token == lease.token and (
        run.status in TERMINAL or run.status == RunStatus.QUEUED or _released(work, run, lease)
    ):
        return run
    check_hold(run, lease, work.now())
    if run.status == RunStatus.RUNNING:
        return finishing.finish_run(work, run, RunStatus.SUCCEEDED, None, context=run.context)
    return clear_lease(work, run)


def _released(work: UnitOfWork, run: WorkflowRun, lease: Lease) -> bool:
    """Whether the worker has released the run itself, as it does to wait for the run's children."""
    return run.lease_owner is None and lease.expires_at > work.now()
