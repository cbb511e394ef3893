"""Workflow runs: the list, and one run as a time line with what it waits for, what it did and what it cost."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from persist.cli.runs import runs
from persist.errors import Conflict
from persist.ui.charts import Stretch
from persist.ui.views import Action, Change, Section, View, Visit
from persist.workflows.schemas import TERMINAL, Execution, FailureKind, RunStatus, WorkflowRun


def _wanted(visit: Visit) -> dict[str, Any]:
    status = visit.one_of("status", RunStatus)
    kind = visit.one_of("failure_kind", FailureKind)
    return {"status": status, "workflow_name": visit.text("workflow_name"), "failure_kind": kind, "since": visit.since()}


def _list(visit: Visit) -> dict[str, Any]:
    found = visit.tx.workflows.runs.list(**_wanted(visit), trigger_id=visit.text("trigger_id"), **visit.page())
    return {
        "title": "Runs",
        "page": found,
        "statuses": [status.value for status in RunStatus],
        "kinds": [kind.value for kind in FailureKind],
        "refresh": not visit.text("after"),
    }


def _show(visit: Visit) -> dict[str, Any]:
    tx, id = visit.tx, visit.values["id"]
    run = tx.workflows.runs.get(id)
    executions = tx.workflows.executions.for_run(id)
    effects, signals = tx.workflows.effects.list(id), tx.workflows.signals.list(id)
    gates = tx.workflows.approvals.list_for_run(id)
    children = tx.workflows.runs.children(id, limit=100)
    return {
        "title": run.workflow_name,
        "run": run,
        "executions": executions,
        "gates": gates,
        "effects": effects,
        "signals": signals,
        "children": children,
        "family": tx.workflows.runs.family(id) if children.items else None,
        "line": list(_stretches(run, executions, gates)),
        "tokens": sum((one.input_tokens or 0) + (one.output_tokens or 0) for one in executions),
        "cost": sum(one.cost_usd or 0.0 for one in executions),
        "ended": run.status in TERMINAL,
        "refresh": run.status not in TERMINAL,
    }


def _stretches(run: WorkflowRun, executions: Sequence[Execution], gates: Sequence[Any]) -> Iterator[Stretch]:
    """The bars of a run's time line, by when they began."""
    bars = [*_phases(run), *map(_execution, executions), *map(_gate, gates)]
    yield from sorted(bars, key=lambda bar: bar.starts)


def _phases(run: WorkflowRun) -> Iterator[Stretch]:
    """Each entry of the history lasts until the next one; another program may have stored entries of any kind."""
    entries = [(str(one.get("phase", "?")), _instant(one.get("timestamp"))) for one in run.phase_history if isinstance(one, dict)]
    known = [(phase, at) for phase, at in entries if at is not None]
    ends = [*(at for _, at in known[1:]), run.finished_at]
    for (phase, at), after in zip(known, ends, strict=False):  # without any entry there is nothing to end
        yield Stretch(phase, "phase", at, max(after, at) if after else None, f"phase {phase}")


def _instant(value: object) -> datetime | None:
    """The instant that an entry names, None where it is no text of one."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)


def _execution(one: Execution) -> Stretch:
    title = f"{one.skill}: {one.outcome}" + (f", {one.error}" if one.error else "")
    return Stretch(one.skill, one.outcome.value, one.started_at, one.finished_at, title[:300])


def _gate(gate: Any) -> Stretch:
    title = f"{gate.gate}: {gate.status}" + (f" by {gate.responded_by}" if gate.responded_by else "")
    return Stretch(f"{gate.gate} (waits)", "waiting", gate.created_at, gate.responded_at, title)


# -- changes


def _done(done: bool, run: str, refusal: str, said: str) -> str:
    if not done:
        raise Conflict(f"The run {run} {refusal}.")
    return f"{said} the run {run}."


def _pause(change: Change) -> str:
    id = change.values["id"]
    return _done(change.tx.workflows.runs.pause(id), id, "does not run, or a worker holds it", "Paused")


def _resume(change: Change) -> str:
    id = change.values["id"]
    return _done(change.tx.workflows.runs.resume(id), id, "is not paused, or waits at a gate", "Resumed")


def _cancel(change: Change) -> str:
    id = change.values["id"]
    cancelled = change.tx.workflows.runs.cancel(id, reason=change.form.get("reason") or f"cancelled by {change.actor}")
    return _done(cancelled, id, "has ended already", "Cancelled")


def _restart(change: Change) -> str:
    id = change.values["id"]
    return _done(change.tx.workflows.runs.restart(id), id, "is neither failed nor cancelled", "Restarted")


def _retry(change: Change) -> str:
    id = change.values["id"]
    done = change.tx.workflows.runs.restart(id)
    return _done(done and bool(change.tx.workflows.runs.requeue(id)), id, "is neither failed nor cancelled", "Queued again:")


SECTION = Section(
    "Runs",
    "/runs",
    views=(
        View("/runs", "runs.html", _list, lambda visit: runs.answer("ls", visit.tx, **_wanted(visit), **visit.page(20))),
        View("/runs/{id}", "run.html", _show, lambda visit: runs.answer("show", visit.tx, run=visit.values["id"])),
    ),
    actions=(
        Action("/runs/{id}/pause", _pause),
        Action("/runs/{id}/resume", _resume),
        Action("/runs/{id}/cancel", _cancel),
        Action("/runs/{id}/restart", _restart),
        Action("/runs/{id}/retry", _retry),
    ),
)
