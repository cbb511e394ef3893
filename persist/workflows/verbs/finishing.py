"""The one way to end a run, alone or with everything below it; observers are notified after the commit."""

import logging
from typing import Any

from sqlalchemy import null, update

from persist.db.changes.batch import Batch, Pending
from persist.db.statements.prepared import Row, Statement, among, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable, number_after
from persist.db.values.arguments import check_choice
from persist.db.values.json import Json
from persist.errors import InvalidValue, shown
from persist.workflows.models import runs
from persist.workflows.schemas import UNFINISHED, FailureKind, Lease, RunStatus, WorkflowRun, check_transition
from persist.workflows.storage import run_rows
from persist.workflows.storage.queue import HAS_INSTANTS, WRITABLE, guard_values
from persist.workflows.storage.run_rows import close_gates, close_gates_of_ended, deepest_first, first_look, tell_parents
from persist.workflows.verbs import limits

RUN_FINISHED = "run_finished"
"""The topic under which the end of a run is announced."""
_R = runs.c
_FINISH = Statement(
    update(runs)
    .where(_R.id == param("row_id"))
    .values(
        status=param("to"),
        current_phase=param("phase"),
        phase_history=param("history"),
        context=param("new_context"),
        lease_owner=null(),
        lease_expires_at=null(),
        lease_token=param("token"),
        failure_kind=param("kind"),
        updated_at=param("at"),
        finished_at=param("at"),
    )
)


def _end_at_once(statuses: frozenset[RunStatus], *conditions: Any, leased: bool) -> Statement:
    return Statement(
        update(runs)
        .where(_R.id == param("row_id"), WRITABLE[leased], HAS_INSTANTS, among(_R.status, sorted(statuses)), *conditions)
        .values(
            status=param("to"),
            lease_owner=null(),
            lease_expires_at=null(),
            failure_kind=param("kind"),
            updated_at=param("at"),
            finished_at=param("at"),
        )
        .returning(*run_rows.RUN.columns)
    )


_FINISH_AT_ONCE = {leased: _end_at_once(frozenset({RunStatus.RUNNING, RunStatus.PAUSED}), leased=leased) for leased in WRITABLE}
_COMPLETE_AT_ONCE = _end_at_once(frozenset({RunStatus.RUNNING}), leased=True)
_COMPLETE_PARENTLESS = _end_at_once(frozenset({RunStatus.RUNNING}), _R.parent_run_id.is_(None), leased=True)
_KINDS = {RunStatus.SUCCEEDED: None, RunStatus.FAILED: FailureKind.ERROR}
_HOW_IT_ENDED = {RunStatus.SUCCEEDED: "succeeded", RunStatus.FAILED: "failed", RunStatus.CANCELLED: "was cancelled"}


def finish_run(
    work: UnitOfWork,
    run: WorkflowRun,
    status: RunStatus,
    kind: FailureKind | None,
    *,
    context: dict[str, Any] | None,
    marker: dict[str, Any] | None = None,
) -> WorkflowRun:
    """End a locked run whose transition is allowed, as the last writes of the verb."""
    values = finish_values(work, run, status, kind, context=context, marker=marker)
    with work.batch(last=run.parent_run_id is None) as batch:
        ended = write_finish(work, batch, values)
    (finished,) = announce_finished(work, ended)
    return finished


def finish_values(
    work: UnitOfWork,
    run: WorkflowRun,
    status: RunStatus,
    kind: FailureKind | None,
    *,
    context: dict[str, Any] | None,
    marker: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The values for `write_finish` of a locked run. A newer token fences out the worker of a cancelled run."""
    history: Any = run.phase_history
    if marker is not None and not is_unreadable(history):
        history = run_rows.history_with(work, history, marker)
    return {
        "row_id": run.id,
        "to": status,
        "phase": run.current_phase if marker is None else marker["phase"],
        "history": history,
        "new_context": context,
        "kind": kind,
        "token": _fenced(run.lease_token) if status is RunStatus.CANCELLED else run.lease_token,
        "at": work.now(),
    }


def write_finish(work: UnitOfWork, batch: Batch, values: dict[str, Any]) -> Pending[Row | None]:
    """End a locked run with the values of `finish_values`, and reject its pending gates, which nobody is to find; its row."""
    batch.run(_FINISH, **values)
    close_gates(work, batch, values["row_id"], f"The run ended: it {_HOW_IT_ENDED[values['to']]}.")
    return batch.row(run_rows.GET_RUN, row_id=values["row_id"])


def announce_finished(work: UnitOfWork, *ended: Pending[Row | None]) -> list[WorkflowRun]:
    """Announce the ends of runs for after the commit, and let their parents go on, which takes further writes; the runs."""
    finished = announce(work, *ended)
    tell_parents(work, finished)
    return finished


def announce(work: UnitOfWork, *ended: Pending[Row | None]) -> list[WorkflowRun]:
    """`announce_finished` without a word to the parents."""
    finished = [run_rows.written_run(one) for one in ended]
    for run in finished:
        work.announce(RUN_FINISHED, run)
        limits.announce_freed(work, run)
    return finished


def finish(
    work: UnitOfWork, id: str, status: str, error: str | None, terminal_marker: tuple[str, Json] | None, lease: Lease | None
) -> WorkflowRun:
    """See Runs.finish."""
    to = check_choice("status", status, RunStatus)
    if to not in (RunStatus.SUCCEEDED, RunStatus.FAILED):
        raise InvalidValue("status", "a run finishes as succeeded or failed; cancel() cancels it.")
    marker = None if terminal_marker is None else run_rows.history_item(work, *run_rows.marker_of(terminal_marker), work.now())
    run_rows.with_error(work, None, error)
    if marker is None and error is None and (ended := _at_once(work, _FINISH_AT_ONCE[lease is not None], id, to, lease)):
        return ended
    run = run_rows.held_run(work, id, lease)
    check_transition(run.id, run.status, to)
    return finish_run(work, run, to, _KINDS[to], context=run_rows.with_error(work, run.context, error), marker=marker)


def complete(work: UnitOfWork, lease: Lease) -> WorkflowRun | None:
    """End the running run of a lease as succeeded, in one statement. None, and nothing is written, if that cannot be done so."""
    is_last = lease.run.parent_run_id is None
    statement = _COMPLETE_PARENTLESS if is_last else _COMPLETE_AT_ONCE
    return _at_once(work, statement, lease.run_id, RunStatus.SUCCEEDED, lease, is_last=is_last)


def _at_once(
    work: UnitOfWork, statement: Statement, id: str, to: RunStatus, lease: Lease | None, *, is_last: bool = False
) -> WorkflowRun | None:
    """Check and end in one round trip; None if that may not be done so. `is_last`: it ends no run with a parent."""
    held, run_id = guard_values(work, id, lease), work.label("id", id)
    if held is None:
        return None
    with work.batch(last=is_last) as batch:
        ended = batch.returned(statement, row_id=run_id, to=to, kind=_KINDS[to], at=work.now(), **held)
        close_gates_of_ended(work, batch, run_id, f"The run ended: it {_HOW_IT_ENDED[to]}.")
    return None if ended.result is None else announce_finished(work, ended)[0]


def _fenced(token: int) -> int:
    """The next token; 0 stays 0: workers never claimed the run, and must not claim it after a restart either."""
    return token if is_unreadable(token) or not token else number_after("lease_token", token)


def cancel_run(work: UnitOfWork, id: str, reason: str | None, statuses: frozenset[RunStatus], kind: FailureKind) -> bool:
    """End a run that is in one of the statuses as cancelled, with the reason in its context; False otherwise."""
    run_rows.with_error(work, None, reason, path="reason")
    run = run_rows.find_run(work, id)
    if run is None or run.status not in statuses:
        return False
    finish_run(work, run, RunStatus.CANCELLED, kind, context=run_rows.with_error(work, run.context, reason, path="reason"))
    return True


# Cancelling a run with everything below it, in one transaction.

log = logging.getLogger("persist")


def cancel_family(work: UnitOfWork, id: str, reason: str | None) -> bool:
    """Cancel the run and its descendants, those that have not ended; whether there was one."""
    run_rows.with_error(work, None, reason, path="reason")
    root = work.label("id", id)
    found = _locked(work, root)
    inside = {None, root, *(run.id for run in found)}
    ending = [
        finish_values(
            work,
            run,
            RunStatus.CANCELLED,
            FailureKind.CANCELLED,
            context=run_rows.with_error(work, run.context, reason, path="reason"),
        )
        for run in found
        if not is_unreadable(run.status) and run.status in UNFINISHED
    ]
    with work.batch(last=all(run.parent_run_id in inside for run in found)) as batch:
        ended = [write_finish(work, batch, values) for values in ending]
    # parents inside of the family have ended with it
    tell_parents(work, [run for run in announce(work, *ended) if run.parent_run_id not in inside])
    return bool(ended)


def _locked(work: UnitOfWork, root: str) -> list[WorkflowRun]:
    """The run and its descendants, locked in the order in which their own ends lock them: children before parents.

    Who creates a child looks at the parent under a lock, and refuses once the parent has ended. So whatever was created until
    the last parent was locked is found by the next look, and nothing is created after a look that finds nothing new.
    """
    locked: dict[str, WorkflowRun] = {}
    tried: set[str] = set()
    looks, found = first_look(work, root)
    while new := [id for id in deepest_first(found, root) if id not in tried]:
        tried.update(new)
        with work.batch() as batch:
            rows = [batch.row(run_rows.LOCK_RUN, row_id=id) for id in new if _is_label(work, id)]
            again = batch.rows(looks, root=root)
        found = [(id, parent) for id, parent in again.result]
        for row in rows:
            if row.result is not None:
                run = run_rows.RUN(row.result)
                locked[run.id] = run
    return list(locked.values())


def _is_label(work: UnitOfWork, id: str) -> bool:
    try:
        work.label("id", id)
    except InvalidValue as error:
        log.warning("%s is left as it is: %s", f"the workflow run {shown(id)}", error)
        return False
    return True
