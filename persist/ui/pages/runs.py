"""Workflow runs: the list, and one run as a time line with what it waits for, what it did and what it cost."""

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from persist.cli.runs import runs
from persist.errors import Conflict
from persist.sessionlog.listing import folders, is_safe_project_slug, normalize_session_id
from persist.ui.charts import Stretch
from persist.ui.views import Action, Change, Section, View, Visit
from persist.workflows.schemas import (
    TERMINAL,
    Approval,
    ApprovalStatus,
    Effect,
    Execution,
    FailureKind,
    RunStatus,
    Signal,
    WorkflowRun,
)
from persist.workflows.storage.standings import AwaitedSignal, awaited_signal, run_heads

_MOST_NAMES, _MOST_LOGS = 100, 20
_ROWS, _MOST_ROWS = 100, 1_000
"""How many rows each part of a run's page has at first, and at most."""
_STATUS_KEYS = ("status", "state")
"""What nodes of a graph call their status."""


def _wanted(visit: Visit) -> dict[str, Any]:
    status = visit.one_of("status", RunStatus)
    kind = visit.one_of("failure_kind", FailureKind)
    named = visit.filters("workflow_name", "trigger_id", "parent_run_id")
    return {"status": status, "failure_kind": kind, "since": visit.since(), **named}


def _list(visit: Visit) -> dict[str, Any]:
    tx, wanted = visit.tx, _wanted(visit)
    found = tx.workflows.runs.list(**wanted, **visit.page())
    uncounted = {name: wanted.pop(name) for name in ("trigger_id", "parent_run_id")}
    names = tx.workflows.runs.distinct_names()
    return {
        "title": "Runs",
        "page": found,
        "failed": visit.ask(run_heads, [run.id for run in found.items if run.status == RunStatus.FAILED]),
        "total": None if any(uncounted.values()) else tx.workflows.runs.count(exact=False, **wanted),
        "statuses": [status.value for status in RunStatus],
        "kinds": [kind.value for kind in FailureKind],
        "names": names if len(names) <= _MOST_NAMES else None,
        "refresh": not visit.text("after"),
    }


def _show(visit: Visit) -> dict[str, Any]:
    tx, id, rows = visit.tx, visit.values["id"], visit.number("rows", _ROWS, _MOST_ROWS)
    run = tx.workflows.runs.get(id)
    executions = tx.workflows.executions.for_run(id)
    effects, signals = tx.workflows.effects.list(id), tx.workflows.signals.list(id)
    gates = tx.workflows.approvals.list_for_run(id)
    children = tx.workflows.runs.children(id, limit=_ROWS)
    awaited = visit.ask(awaited_signal, id) if run.status == RunStatus.PAUSED else None
    bars = [_closed(bar, run) for bar in _stretches(run, executions, gates, effects, signals, awaited)]
    line = sorted(bars, key=lambda bar: bar.starts)
    output = visit.text("output")
    of_run = output is not None and any(one.id == output for one in executions)
    return {
        "title": run.workflow_name,
        "run": run,
        "error": _error(run),
        "history": [_entry(one) for one in run.phase_history[:rows]],
        "more_history": len(run.phase_history) - rows,
        "executions": _with_tries(executions)[:rows],
        "more_executions": len(executions) - rows,
        "logs": _logs(visit.site.logs, executions),
        "output": tx.workflows.executions.output_text(output) if output and of_run else None,
        "gates": gates,
        "head": visit.ask(run_heads, [id]).get(id) if any(gate.status == ApprovalStatus.PENDING for gate in gates) else None,
        "effects": effects[:rows],
        "more_effects": len(effects) - rows,
        "signals": signals[:rows],
        "more_signals": len(signals) - rows,
        "awaited": awaited,
        "children": children,
        "family": tx.workflows.runs.family(id) if children.items else None,
        "nodes": [_node(name, value) for name, value in (run.node_statuses or {}).items()][:rows],
        "line": line[:rows],
        "more_line": len(line) - rows,
        "tokens": sum(map(_tokens, executions)),
        "cost": sum(one.cost_usd or 0.0 for one in executions),
        "most_rows": _MOST_ROWS,
        "ended": run.status in TERMINAL,
        "refresh": run.status not in TERMINAL,
    }


def _tokens(one: Execution) -> int:
    return (one.input_tokens or 0) + (one.output_tokens or 0) + (one.cache_read_input_tokens or 0)


def _error(run: WorkflowRun) -> str | None:
    """Why it failed, or why its last attempt did."""
    error = run.context.get("error") if isinstance(run.context, dict) else None
    return error if isinstance(error, str) and error else run.last_error


def _entry(entry: Any) -> dict[str, Any]:
    """An entry of the history: its phase and instant, and what it says beside them; another program may have stored anything."""
    if not isinstance(entry, dict):
        return {"phase": None, "at": None, "rest": entry}
    at = _instant(entry.get("timestamp"))
    known = ("phase", "timestamp") if at is not None else ("phase",)
    return {"phase": entry.get("phase"), "at": at, "rest": {name: one for name, one in entry.items() if name not in known}}


def _node(name: str, value: Any) -> tuple[str, str | None, Any]:
    """A node of a graph: its name, its status if it says one, and what it says beside that."""
    if isinstance(value, str):
        return name, value, None
    key = next((key for key in _STATUS_KEYS if isinstance(value, dict) and isinstance(value.get(key), str)), None)
    if key is None:
        return name, None, value
    return name, value[key], {other: one for other, one in value.items() if other != key}


def _with_tries(executions: Sequence[Execution]) -> list[tuple[Execution, int]]:
    """Each execution, and the how manieth of its phase it is."""
    tries = Counter[str]()
    found = list[tuple[Execution, int]]()
    for one in executions:
        tries[one.skill] += 1
        found.append((one, tries[one.skill]))
    return found


def _logs(home: Path | None, executions: Sequence[Execution]) -> dict[str, str]:
    """The project of each session that has a log below that folder."""
    sessions = {one.session_id for one in executions if normalize_session_id(one.session_id) is not None}
    if home is None or not sessions:
        return {}
    projects = folders(home / "projects")
    found = {}
    for session in islice(sessions, _MOST_LOGS):
        for project in projects:
            if is_safe_project_slug(project.name) and (project / f"{session}.jsonl").is_file():
                found[str(session)] = project.name
                break
    return found


# -- the time line


def _closed(bar: Stretch, run: WorkflowRun) -> Stretch:
    """What nobody has ended ends with the run."""
    return bar if bar.ends is not None or run.finished_at is None else replace(bar, ends=max(bar.starts, run.finished_at))


def _stretches(
    run: WorkflowRun,
    executions: Sequence[Execution],
    gates: Sequence[Approval],
    effects: Sequence[Effect],
    signals: Sequence[Signal],
    awaited: AwaitedSignal | None,
) -> Iterator[Stretch]:
    """The bars of a run's time line."""
    yield from _phases(run, {one.id for one in executions})
    for one, number in _with_tries(executions):
        title = f"{one.skill}: {one.outcome}" + (f", {one.error}" if one.error else "")
        phase = one.skill.removeprefix(f"{run.workflow_name}:")
        label = phase if number == 1 else f"{phase} (try {number})"
        yield Stretch(label, one.outcome.value, one.started_at, one.finished_at, title[:300])
    for gate in gates:
        title = f"{gate.gate}: {gate.status}" + (f" by {gate.responded_by}" if gate.responded_by else "")
        yield Stretch(f"{gate.gate} (a person)", "waiting", gate.created_at, gate.responded_at, title)
    for effect in effects:
        title = f"effect {effect.key}: {effect.state}" + (f", {effect.error}" if effect.error else "")
        yield Stretch(f"{effect.key} (effect)", effect.state.value, effect.begun_at, effect.ended_at, title[:300])
    for signal in signals:
        said = "nobody sent it in time" if signal.timed_out else "sent"
        yield Stretch(
            f"{signal.name} (signal)", "phase", signal.sent_at, signal.taken_at or signal.sent_at, f"{signal.name}: {said}"
        )
    yield from _waits(run, awaited)


def _waits(run: WorkflowRun, awaited: AwaitedSignal | None) -> Iterator[Stretch]:
    """What the run waits for now, but for a person."""
    if awaited is not None:
        yield Stretch(f"{awaited.name} (waits)", "waiting", awaited.since, None, f"waits for the signal {awaited.name}")
    if run.status == RunStatus.PAUSED and run.join_until is not None:
        yield Stretch("its children (waits)", "waiting", run.updated_at, None, "waits for its children")
    if run.status == RunStatus.QUEUED:
        retry = run.attempt > 1 or run.last_error is not None
        if run.not_before is not None:
            label = f"attempt {run.attempt} (waits)" if retry else "delayed"
            yield Stretch(label, "waiting", min(run.updated_at, run.not_before), run.not_before, "queued, until its time comes")
        since = run.queued_at or run.started_at
        if run.not_before is None or since > run.not_before:
            yield Stretch("in the queue", "queued", since, None, "ready, and waits for a worker")


def _phases(run: WorkflowRun, executions: Container[str]) -> Iterator[Stretch]:
    """Each entry of the history lasts until the next one, but for those that tell the end of an execution."""
    marks = [one for one in run.phase_history if isinstance(one, dict) and str(one.get("execution")) not in executions]
    entries = [(str(one.get("phase", "?")), _instant(one.get("timestamp"))) for one in marks]
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


# -- changes


def _done(change: Change, done: bool, refusal: str, said: str) -> str:
    id = change.values["id"]
    if not done:
        raise Conflict(f"The run {id} is {change.tx.workflows.runs.get(id).status}: it {refusal}.")
    return f"{said} the run {id}."


def _pause(change: Change) -> str:
    done = change.tx.workflows.runs.pause(change.values["id"])
    return _done(change, done, "cannot be paused, since it does not run, or a worker holds it", "Paused")


def _resume(change: Change) -> str:
    done = change.tx.workflows.runs.resume(change.values["id"])
    return _done(change, done, "cannot go on, since it is not paused, or waits at a gate", "Resumed")


def _cancel(change: Change) -> str:
    reason, cascade = change.form.get("reason") or f"cancelled by {change.actor}", bool(change.form.get("cascade"))
    done = change.tx.workflows.runs.cancel(change.values["id"], reason=reason, cascade=cascade)
    return _done(change, done, "has ended already", "Cancelled")


def _restart(change: Change) -> str:
    done = change.tx.workflows.runs.restart(change.values["id"])
    return _done(change, done, "cannot be restarted, since it is neither failed nor cancelled", "Restarted")


def _retry(change: Change) -> str:
    runs = change.tx.workflows.runs
    done = runs.restart(change.values["id"]) and bool(runs.requeue(change.values["id"]))
    return _done(change, done, "cannot be queued again, since it is neither failed nor cancelled", "Queued again:")


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
