"""A workflow run as lines of text that a person can read."""

from collections.abc import Iterator, Sequence
from typing import Any

from persist.cli.nouns import known
from persist.cli.output import Paint, cost, inline, instant, shortened, tokens
from persist.workflows.family_values import FamilyTotals, JoinUntil, OnExpiry
from persist.workflows.schemas import Approval, ApprovalStatus, Execution, Outcome, RunStatus, WorkflowRun, WorkflowRunSummary

_COLOURS: dict[str, str] = {
    Outcome.SUCCEEDED: "green",
    Outcome.FAILED: "red",
    Outcome.RUNNING: "yellow",
    ApprovalStatus.APPROVED: "green",
    ApprovalStatus.REJECTED: "red",
    ApprovalStatus.PENDING: "yellow",
    "cancelled": "red",
    "paused": "yellow",
}
_ITEM = ("phase", "timestamp")


def run_lines(run: WorkflowRun, executions: Sequence[Execution], approvals: Sequence[Approval], paint: Paint) -> Iterator[str]:
    """What is known of the run, then a section for everything it has some of."""
    yield from known(_facts(run, executions))
    for title, values in (("context", run.context), ("scratch", run.scratch), ("nodes", run.node_statuses)):
        if values:
            yield from ("", paint(title, bold=True))
            yield from (f"  {inline(name)}  {shortened(value)}" for name, value in values.items())
    if run.phase_history:
        yield from ("", paint("phases", bold=True))
        yield from map(_phase, run.phase_history)
    if executions:
        yield from ("", paint("executions", bold=True))
        for execution in executions:
            yield from _execution(execution, paint)
    if approvals:
        yield from ("", paint("approvals", bold=True))
        for approval in approvals:
            yield from _approval(approval, paint)


def family_lines(children: Sequence[WorkflowRunSummary], family: FamilyTotals, paint: Paint) -> Iterator[str]:
    """The children of a run, the last started first, and what it and all its descendants cost; nothing without children."""
    if not children:
        return
    yield from ("", paint("children", bold=True))
    for child in children:
        status = paint(inline(child.status), fg=_COLOURS.get(child.status))
        id = paint(inline(child.id), dim=True)
        yield f"  {instant(child.started_at)}  {inline(child.workflow_name)}  {status}  {inline(child.current_phase)}  {id}"
    counts = ", ".join(f"{count:,} {inline(status)}" for status, count in sorted(family.by_status.items()))
    yield from ("", paint("family", bold=True))
    yield f"  {family.runs:,} runs: {counts}"
    yield f"  {family.executions:,} executions, {tokens(family.total_tokens)} tokens, {cost(family.cost_usd)}"


def _facts(run: WorkflowRun, executions: Sequence[Execution]) -> Iterator[tuple[str, object]]:
    yield "run", run.id
    yield "workflow", run.workflow_name
    yield "trigger", run.trigger_id
    yield "repository", run.repo
    yield "issue", None if run.issue_number is None else f"#{run.issue_number}"
    yield "status", run.status
    yield "phase", run.current_phase
    if run.restart_count:
        yield "restarts", f"{run.restart_count:,}" + ("" if run.max_restarts is None else f" of at most {run.max_restarts:,}")
    yield "parent", run.parent_run_id
    if run.join_until is not None and run.status == RunStatus.PAUSED:
        yield "waits for", "its children" + (", or the first that fails" if run.join_until == JoinUntil.FIRST_FAILURE else "")
    if run.lease_owner is not None and run.lease_expires_at is not None:
        yield "worker", f"{run.lease_owner} until {instant(run.lease_expires_at)} UTC"
    yield "tokens", tokens(sum(_tokens(execution) for execution in executions))
    yield "cost", cost(sum(execution.cost_usd or 0.0 for execution in executions))
    yield "started", run.started_at
    yield "updated", run.updated_at
    yield "finished", run.finished_at


def _tokens(execution: Execution) -> int:
    """As lists count them: not what was written to the cache."""
    return (execution.input_tokens or 0) + (execution.output_tokens or 0) + (execution.cache_read_input_tokens or 0)


def _phase(item: Any) -> str:
    """One entry of the history; files that others wrote may hold anything."""
    if not isinstance(item, dict):
        return f"  {shortened(item)}"
    rest = {name: value for name, value in item.items() if name not in _ITEM}
    heads = [inline(str(item.get(name, "?"))) for name in reversed(_ITEM)]
    return "  ".join(["", *heads, *([shortened(rest)] if rest else [])])


def _execution(execution: Execution, paint: Paint) -> Iterator[str]:
    outcome = paint(execution.outcome, fg=_COLOURS.get(execution.outcome))
    used = f"{tokens(_tokens(execution))} tokens, {cost(execution.cost_usd)}"
    id = paint(inline(execution.id), dim=True)
    yield f"  {instant(execution.started_at)}  {inline(execution.skill)}  {outcome}  {used}  {id}"
    if execution.session_id is not None:
        yield f"    session {inline(execution.session_id)}"
    if execution.error is not None:
        yield f"    error   {shortened(execution.error)}"


def _approval(approval: Approval, paint: Paint) -> Iterator[str]:
    status = paint(inline(approval.status), fg=_COLOURS.get(approval.status))
    by = "" if approval.responded_by is None else f" by {inline(approval.responded_by)}"
    when = "" if approval.responded_at is None else f" at {instant(approval.responded_at)}"
    yield f"  {instant(approval.created_at)}  {inline(approval.gate)}  {status}{by}{when}  {paint(inline(approval.id), dim=True)}"
    yield f"    {inline(approval.kind):<7} {shortened(approval.summary)}"
    if approval.expires_at is not None and approval.status == ApprovalStatus.PENDING:
        yield f"    expires {instant(approval.expires_at)} UTC, then it is {inline(approval.on_expiry or OnExpiry.REJECTED)}"
    if approval.response is not None:
        yield f"    answer  {shortened(approval.response)}"
