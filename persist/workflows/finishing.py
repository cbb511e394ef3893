"""The one way a run ends: status, error, marker and the end of its lease in one statement, told to observers after commit."""

from typing import Any

from sqlalchemy import null, update

from persist.db.checks import check_word
from persist.db.hot import Hot, param
from persist.db.json import Json
from persist.db.spoilt import is_unreadable
from persist.db.work import Work
from persist.errors import InvalidValue
from persist.workflows.gates import close_gates
from persist.workflows.models import runs
from persist.workflows.payloads import history_item, history_with, marker_of, with_error
from persist.workflows.run_rows import find_run, get_run, held_run
from persist.workflows.schemas import Lease, RunStatus, WorkflowRun
from persist.workflows.transitions import check_transition

RUN_FINISHED = "run_finished"
"""The topic under which the end of a run is announced."""

_R = runs.c
_FINISH = Hot(
    update(runs)
    .where(_R.id == param("row_id"))
    .values(
        status=param("to"),
        current_phase=param("phase"),
        phase_history=param("history"),
        context=param("said"),
        lease_owner=null(),
        lease_expires_at=null(),
        lease_token=param("token"),
        updated_at=param("at"),
        finished_at=param("at"),
    )
)
_ENDED = {RunStatus.SUCCEEDED: "succeeded", RunStatus.FAILED: "failed", RunStatus.CANCELLED: "was cancelled"}


def finish_run(
    work: Work, run: WorkflowRun, status: RunStatus, *, context: dict[str, Any] | None, marker: dict[str, Any] | None = None
) -> WorkflowRun:
    """End a run that is locked and may end so. A cancelled run's worker is fenced out by a newer token.

    Gates that still wait are rejected with it, by nobody: whoever looks for work to approve must not find what is over.
    """
    history: Any = run.phase_history
    if marker is not None and not is_unreadable(history):
        history = history_with(work, history, marker)
    work.run(
        _FINISH,
        row_id=run.id,
        to=status,
        phase=run.current_phase if marker is None else marker["phase"],
        history=history,
        said=context,
        token=run.lease_token
        if is_unreadable(run.lease_token) or status is not RunStatus.CANCELLED
        else _fenced(run.lease_token),
        at=work.now(),
    )
    close_gates(work, run.id, f"The run ended: it {_ENDED[status]}.")
    finished = get_run(work, run.id)
    work.announce(RUN_FINISHED, finished)
    return finished


def end_run(
    work: Work, id: str, status: str, error: str | None, terminal_marker: tuple[str, Json] | None, lease: Lease | None
) -> WorkflowRun:
    """See Runs.finish."""
    to = check_word("status", status, RunStatus)
    if to not in (RunStatus.SUCCEEDED, RunStatus.FAILED):
        raise InvalidValue("status", "a run finishes as succeeded or failed; cancel() cancels it.")
    marker = None if terminal_marker is None else history_item(work, *marker_of(terminal_marker), work.now())
    with_error(work, None, error)
    run = held_run(work, id, lease)
    check_transition(run.id, run.status, to)
    return finish_run(work, run, to, context=with_error(work, run.context, error), marker=marker)


def _fenced(token: int) -> int:
    """A run that workers never claimed stays one that they never claim, when it is restarted too."""
    return token if is_unreadable(token) else token + (token > 0)


def cancel_run(work: Work, id: str, reason: str | None, statuses: frozenset[RunStatus]) -> bool:
    """End a run that is in one of the statuses as cancelled, with the reason in its context; False otherwise."""
    with_error(work, None, reason, path="reason")
    run = find_run(work, id, lock=True)
    if run is None or run.status not in statuses:
        return False
    finish_run(work, run, RunStatus.CANCELLED, context=with_error(work, run.context, reason, path="reason"))
    return True
