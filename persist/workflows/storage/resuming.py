"""A paused run goes on: with the worker that still holds it, otherwise any worker may claim it."""

from datetime import datetime
from typing import Any

from sqlalchemy import delete, null, update

from persist.db.changes.batch import Batch
from persist.db.statements.prepared import Statement, param
from persist.workflows.models import runs, waits
from persist.workflows.schemas import RunStatus, WorkflowRun
from persist.workflows.storage.gates import OPEN_GATE
from persist.workflows.storage.run_rows import is_live

_R = runs.c
_resume = (
    update(runs)
    .where(_R.id == param("row_id"))
    .values(
        status=RunStatus.RUNNING,
        lease_owner=param("owner"),
        lease_expires_at=param("until"),
        join_until=null(),
        updated_at=param("at"),
    )
)
RESUME = Statement(_resume)
END_WAIT = Statement(delete(waits).where(waits.c.run_id == param("run_id")))
"""A run no longer waits for a signal."""
_RESUME_UNGATED = Statement(_resume.where(~OPEN_GATE.statement.exists()))  # type: ignore[attr-defined]  # it is a select


def resumption(run: WorkflowRun, now: datetime) -> dict[str, Any]:
    """The values that resume a locked run."""
    live = is_live(run, now)
    owner, until = (run.lease_owner, run.lease_expires_at) if live else (None, handed_over_at(run, now))
    return {"row_id": run.id, "owner": owner, "until": until, "at": now}


def resume_ungated(batch: Batch, values: dict[str, Any]) -> None:
    """Resume a locked run with the values of `resumption`, unless it has a pending gate."""
    batch.run(_RESUME_UNGATED, **values, run_id=values["row_id"])


def handed_over_at(run: WorkflowRun, now: datetime) -> datetime | None:
    """The lease's expiry for a run without an owner: any worker may claim it from now on, if workers ever claimed it."""
    return now if run.lease_token else None
