"""Recovery after a crash: stale executions, the restart count and its cap."""

import logging
from datetime import datetime
from typing import Any

from sqlalchemy import and_, null, or_, select, update

from persist.db.changes.batch import Batch
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.unreadable.conditions import reader_of
from persist.errors import Conflict, InvalidValue, PayloadTooLarge
from persist.quoting import shown
from persist.workflows.models import IS_UNFINISHED, executions, runs
from persist.workflows.schemas import FailureKind, RunStatus, WorkflowRun
from persist.workflows.storage.payloads import with_error
from persist.workflows.storage.resuming import END_WAIT, handed_over_at
from persist.workflows.storage.run_rows import GET_RUN, RUN, announce_claimable, written_run
from persist.workflows.verbs.finishing import announce_finished, finish_values, write_finish

log = logging.getLogger("persist")

DEFAULT_CAP = 3
"""The restart cap of runs from adopted files, which have none of their own."""

_R, _E = runs.c, executions.c
_id = param("row_id")
_held = and_(_R.lease_owner.is_not(None), _R.lease_expires_at > param("at"))
_waits_for_worker = and_(_R.lease_owner.is_(None), _R.lease_expires_at.is_not(None))
_INTERRUPTED = Statement(
    select(*RUN.columns)
    .where(_R.status == RunStatus.RUNNING, ~or_(_held, _waits_for_worker))
    .order_by(_R.started_at.desc(), _R.id.desc())  # children, which start later, are locked before their parents
    .with_for_update(),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_FAILED = {"success": False, "error": param("reason"), "finished_at": param("at")}
_FAIL_OF_RUN = Statement(update(executions).where(_E.workflow_run_id == _id, IS_UNFINISHED).values(_FAILED))
_FAIL_OF_TRIGGER = Statement(
    update(executions)
    .where(
        _E.trigger_id == param("of_trigger"),
        IS_UNFINISHED,
        or_(_E.workflow_run_id.is_(None), _E.workflow_run_id.not_in(select(_R.id).where(_held))),
    )
    .values(_FAILED)
)
_COUNT = Statement(
    update(runs)
    .where(_R.id == _id)
    .values(
        restart_count=param("count"),
        lease_owner=null(),
        lease_expires_at=null(),
        lease_token=param("token"),
        updated_at=param("at"),
    )
)
_INCREMENT = Statement(update(runs).where(_R.id == _id).values(restart_count=param("count"), updated_at=param("at")))
_STAMP_QUEUED = Statement(update(runs).where(_R.status == RunStatus.QUEUED).values(updated_at=param("at")))
_RESTART = Statement(
    update(runs)
    .where(_R.id == _id)
    .values(
        status=RunStatus.RUNNING,
        context=param("new_context"),
        max_restarts=param("maximum"),
        restart_count=param("count"),
        lease_expires_at=param("until"),
        attempt=1,
        not_before=null(),
        join_until=null(),
        failure_kind=null(),
        last_error=null(),
        updated_at=param("at"),
        finished_at=null(),
    )
)


def recover(work: UnitOfWork) -> tuple[list[WorkflowRun], list[WorkflowRun]]:
    """See Runs.recover_interrupted."""
    now = work.now()
    interrupted = [RUN(row) for row in reversed(work.rows(_INTERRUPTED, at=now))]
    changes = [(run, change) for run in interrupted if (change := _change(work, run, now)) is not None]
    again, failed = [], []
    with work.batch(last=not any(ends and run.parent_run_id is not None for run, (ends, _) in changes)) as batch:
        for run, (ends, values) in changes:
            batch.run(_FAIL_OF_TRIGGER, of_trigger=run.trigger_id, reason="stale: harness restarted", at=now)
            if ends:
                failed.append(write_finish(work, batch, values))
            else:
                batch.run(_COUNT, **values)
                again.append(batch.row(GET_RUN, row_id=run.id))
        batch.run(_STAMP_QUEUED, at=now)
    return [written_run(row) for row in again], announce_finished(work, *failed)


def _change(work: UnitOfWork, run: WorkflowRun, now: datetime) -> tuple[bool, dict[str, Any]] | None:
    """Whether the run is to end, and the values of the statement that ends or counts it; None if it has to be left alone.

    A label that cannot be bound again, such as one with a NUL, leaves the run alone, with a warning.
    """
    try:
        for column in (_R.id, _R.trigger_id):
            if (reason := reader_of(column)(getattr(run, column.name))) is not None:
                raise InvalidValue(column.name, f"it is {reason}.")
        work.label("id", run.id)
        if at_cap(run):
            return True, _failure(work, run, FailureKind.RESTARTS, _too_often(run))
    except (InvalidValue, PayloadTooLarge) as error:
        log.warning("%s is left as it is: %s", f"the workflow run {shown(run.id)}", error)
        return None
    # a worker whose lease ran out is fenced out by a newer token
    token = run.lease_token + (run.lease_owner is not None)
    return False, {"row_id": run.id, "count": run.restart_count + 1, "token": token, "at": now}


def fail_executions_of_run(work: UnitOfWork, batch: Batch, run: WorkflowRun, reason: str) -> None:
    """Fail the run's unfinished executions, which no worker will finish."""
    batch.run(_FAIL_OF_RUN, row_id=run.id, reason=reason, at=work.now())


def at_cap(run: WorkflowRun) -> bool:
    """Whether the run has reached its restart cap."""
    return run.restart_count >= (DEFAULT_CAP if run.max_restarts is None else run.max_restarts)


def fail_by_cap(work: UnitOfWork, run: WorkflowRun, reason: str) -> None:
    """End a locked run that crashed too often, and fail its unfinished executions for that reason."""
    fail(work, run, FailureKind.RESTARTS, _too_often(run), reason)


def fail(work: UnitOfWork, run: WorkflowRun, kind: FailureKind, error: str, reason: str) -> None:
    """End a locked run as failed, and fail its unfinished executions for that reason."""
    values = _failure(work, run, kind, error)
    with work.batch() as batch:
        fail_executions_of_run(work, batch, run, reason)
        ended = write_finish(work, batch, values)
    announce_finished(work, ended)


def _failure(work: UnitOfWork, run: WorkflowRun, kind: FailureKind, error: str) -> dict[str, Any]:
    return finish_values(work, run, RunStatus.FAILED, kind, context=with_error(work, run.context, error))


def _too_often(run: WorkflowRun) -> str:
    return f"Interrupted again after {run.restart_count} restarts, which is as many as it may have."


def increment(work: UnitOfWork, run: WorkflowRun) -> int:
    """Count a restart of a locked run. Raises Conflict at the cap, which the schema enforces too."""
    if at_cap(run):
        raise Conflict(
            f"The workflow run {run.id!r} was restarted {run.restart_count} times, which is as often as it may be.",
            constraint="ck_workflow_runs_max_restarts",
        )
    with work.batch(last=True) as batch:
        batch.run(_INCREMENT, row_id=run.id, count=run.restart_count + 1, at=work.now())
    return run.restart_count + 1


def restart(work: UnitOfWork, run: WorkflowRun) -> None:
    """Restart a locked run that failed or was cancelled. A person asked for it, so the cap is raised if necessary."""
    now, count = work.now(), run.restart_count + 1
    maximum = None if run.max_restarts is None else max(run.max_restarts, count)
    new_context = _without_error(run.context)
    until = handed_over_at(run, now)
    try:
        with work.batch(last=True) as batch:
            batch.run(_RESTART, row_id=run.id, new_context=new_context, count=count, maximum=maximum, until=until, at=now)
            batch.run(END_WAIT, run_id=run.id)
    except Exception as error:
        if not isinstance(work.runtime.translate(error), Conflict):
            raise
        work.doomed = not work.joined
        # the only unique index over the status is that of triggers with one unfinished run
        raise Conflict(
            f"The workflow run {run.id!r} cannot be restarted: its trigger {run.trigger_id!r} has another unfinished run.",
            constraint="ix_workflow_runs_unique_trigger",
        ) from error
    announce_claimable(work, run)


def _without_error(context: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if context is None else {key: value for key, value in context.items() if key != "error"}
