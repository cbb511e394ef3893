"""One run's row: reading it, locking it, and refusing a write that its lease does not cover."""

from datetime import datetime

from sqlalchemy import select

from persist.db.hot import Hot, Row, param
from persist.db.values import build
from persist.db.work import Work
from persist.errors import InvalidValue, LeaseLost, NotFound
from persist.workflows.models import runs
from persist.workflows.schemas import Lease, WorkflowRun
from persist.workflows.transitions import TERMINAL

_R = runs.c
FIELDS = tuple(WorkflowRun.model_fields)
COLUMNS = tuple(_R[name] for name in FIELDS)
_GET = Hot(select(*COLUMNS).where(_R.id == param("row_id")))
_LOCK = Hot(select(*COLUMNS).where(_R.id == param("row_id")).with_for_update())


def run_value(row: Row) -> WorkflowRun:
    """A row of the columns above."""
    return build(WorkflowRun, dict(zip(FIELDS, row, strict=True)))


def find_run(work: Work, id: str, *, lock: bool = False) -> WorkflowRun | None:
    """The run, locked against other writers on request."""
    row = work.row(_LOCK if lock else _GET, row_id=work.label("id", id))
    return None if row is None else run_value(row)


def get_run(work: Work, id: str, *, lock: bool = False) -> WorkflowRun:
    """The same; NotFound."""
    run = find_run(work, id, lock=lock)
    if run is None:
        raise NotFound("workflow run", id)
    return run


def held_run(work: Work, id: str, lease: Lease | None) -> WorkflowRun:
    """The run, locked, if this caller may write it: NotFound, LeaseLost."""
    run = get_run(work, id, lock=True)
    check_hold(run, lease, work.now())
    return run


def is_live(run: WorkflowRun, now: datetime) -> bool:
    """Whether a worker holds the run."""
    return run.lease_owner is not None and run.lease_expires_at is not None and run.lease_expires_at > now


def check_hold(run: WorkflowRun, lease: Lease | None, now: datetime) -> None:
    """LeaseLost for a write under a lease that is over, or without one on a run that a worker holds.

    Until it expires, a lease on a run that has ended says nothing any more: what may follow is the transition table's to say.
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
