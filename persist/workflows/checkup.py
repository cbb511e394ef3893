"""What may be wrong with workflow runs: nobody works on them, nobody is asked, or nobody's answer is needed any more."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from sqlalchemy import exists, literal_column, or_, select

from persist.db.spoilt import Spoilt
from persist.db.trouble import Severity, Trouble
from persist.db.work import Work
from persist.workflows.models import approvals, runs
from persist.workflows.schemas import ApprovalStatus, RunStatus
from persist.workflows.transitions import TERMINAL

QUIET = timedelta(hours=24)
"""A run that has not changed for so long, and on which nobody holds a lease, is stuck."""

_R, _A = runs.c, approvals.c
_PENDING = _A.status == literal_column(f"'{ApprovalStatus.PENDING}'")  # in these words its partial index serves it


def checkup(work: Work) -> Iterator[Trouble]:
    """Runs that are stuck, and approvals that wait for runs that have ended."""
    now = work.now()
    quiet = select(_R.id, _R.workflow_name, _R.updated_at).where(_R.updated_at < now - QUIET).order_by(_R.updated_at, _R.id)
    unleased = or_(_R.lease_expires_at.is_(None), _R.lease_expires_at <= now)
    stuck: Iterable[Any] = work.found(quiet.where(_R.status == RunStatus.RUNNING, unleased), spoilt=Spoilt.LEAVE_OUT)
    for id, name, updated in stuck:
        message = (
            f"{name} says running, nobody holds it, and nothing changed since {updated:%Y-%m-%d %H:%M} UTC: recover or cancel it."
        )
        yield Trouble("run_stuck", Severity.WARNING, f"run {id}", message)
    asked = exists().where(_A.workflow_run_id == _R.id, _PENDING)
    paused: Iterable[Any] = work.found(quiet.where(_R.status == RunStatus.PAUSED, ~asked), spoilt=Spoilt.LEAVE_OUT)
    for id, name, updated in paused:
        message = f"{name} is paused since {updated:%Y-%m-%d %H:%M} UTC, and no approval is pending: resume or cancel it."
        yield Trouble("run_paused", Severity.WARNING, f"run {id}", message)
    ended = select(_A.id, _A.gate, _R.id, _R.status).join(runs, _R.id == _A.workflow_run_id)
    over = ended.where(_PENDING, _R.status.in_(list(TERMINAL))).order_by(_A.created_at, _A.id)
    moot: Iterable[Any] = work.found(over, spoilt=Spoilt.LEAVE_OUT)
    for id, gate, run, status in moot:
        message = f"{gate} still waits for an answer, and run {run} is {status}: answer it, and it leaves the list."
        yield Trouble("approval_moot", Severity.WARNING, f"approval {id}", message)
