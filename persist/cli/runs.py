"""`persist runs`: the workflow runs of a database."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import click

from persist.cli.nouns import Answer, Noun, Table, known, pages, shown, table, told
from persist.cli.output import Paint, cost, cut, inline, instant, shortened, tokens
from persist.cli.root import Failed
from persist.store.transaction import Transaction
from persist.workflows.schemas import (
    Approval,
    ApprovalStatus,
    Execution,
    ExecutionStats,
    FailureKind,
    FamilyTotals,
    JoinUntil,
    OnExpiry,
    Outcome,
    RunStatus,
    StatsBucket,
    WorkflowRun,
    WorkflowRunSummary,
)

# A workflow run as lines of text that a person can read.

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
    """The facts of the run, then a section per kind of content."""
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


_TRIGGER = 40


def _instant(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"expected an instant such as 2026-01-31 or 2026-01-31T12:00:00Z, got {value!r}.") from None


runs = Noun("runs")
RUNS = Table[WorkflowRunSummary](
    "No runs.",
    ("RUN", "WORKFLOW", "TRIGGER", "STATUS", "PHASE", "STARTED (UTC)", "TOKENS", "COST"),
    lambda run: (
        run.id,
        run.workflow_name,
        cut(run.trigger_id, _TRIGGER),
        run.status,
        run.current_phase,
        run.started_at,
        tokens(run.total_tokens),
        cost(run.cost_usd),
    ),
)


@runs.reads("ls", "List runs, the last started first.")
@click.option(
    "--status",
    multiple=True,
    type=click.Choice([status.value for status in RunStatus]),
    help="Only runs with this status; give it again for another one.",
)
@click.option("--workflow", "workflow_name", metavar="NAME", help="Only runs of this workflow.")
@click.option("--trigger", "trigger_id", metavar="ID", help="Only runs of this trigger.")
@click.option("--parent", "parent_run_id", metavar="ID", help="Only runs that were created for this run.")
@click.option(
    "--failure-kind",
    "failure_kind",
    type=click.Choice([kind.value for kind in FailureKind]),
    help="Only runs that failed or were cancelled for this reason.",
)
@click.option("--since", metavar="INSTANT", callback=_instant, help="Only runs started then or later; UTC unless it says.")
@pages()
def ls(tx: Transaction, **wanted: Any) -> Answer:
    """List runs, the last started first. With --json: an object with `items` and `cursor`, null on the last page."""
    return RUNS.page(tx.workflows.runs.list(**wanted))


@runs.reads("show", "Print one run and what became of its phases.", quiet="Print the status alone.")
@click.argument("run")
def show(tx: Transaction, run: str) -> Answer:
    """Print one run: its context and scratch, the history of its phases, its executions, approvals and children.

    Long values are cut; with --json everything is there: an object with `run`, `executions`, `approvals`, `children` (the last 20
    that started) and `family`, the totals of the run and all its descendants.
    """
    found = tx.workflows.runs.get(run)
    children, family = tx.workflows.runs.children(run).items, tx.workflows.runs.family(run)
    executions, approvals = tx.workflows.executions.for_run(run), tx.workflows.approvals.list_for_run(run)
    return Answer(
        {"run": found, "executions": executions, "approvals": approvals, "children": children, "family": family},
        chain(run_lines(found, executions, approvals, Paint()), family_lines(children, family, Paint())),
        [inline(found.status)],
    )


@runs.reads("stats", "Count runs, executions, tokens and cost.", quiet="Print the days alone.")
@click.option("--days", type=click.IntRange(1, 1000), default=7, show_default=True, help="How many days, today included.")
def stats(tx: Transaction, days: int) -> Answer:
    """Count workflow runs by status and executions by skill, and the last days of executions with their tokens and cost.

    Days are UTC days; "today" begins at midnight where you are. With --json: an object with `runs`, `executions` and `days`.
    """
    counts = {status.value: tx.workflows.runs.count(status=status) for status in RunStatus}
    executions, buckets = tx.workflows.executions.stats(), tx.workflows.executions.daily_stats(days)
    head = ("DAY (UTC)", "TOTAL", "SUCCEEDED", "FAILED", "SKIPPED", "DEFERRED", "RUNNING", "TOKENS", "COST")
    return shown(
        {"runs": counts, "executions": executions, "days": buckets}, _counts(counts, executions), table(head, map(_day, buckets))
    )


@runs.writes("cancel", "Cancel a run, whoever works on it.")
@click.argument("run")
@click.option("--reason", help="Why; kept in the run's context as its error.")
@click.option("--cascade", is_flag=True, help="And everything below it that has not ended.")
def cancel(tx: Transaction, run: str, reason: str | None, cascade: bool) -> Answer:
    """Cancel a run that has not ended, even if a worker holds it. Exit code 1 if it has, or if there is none.

    With --cascade its children and all that is below them are cancelled too, also if the run itself has ended.

    A worker that holds the run can no longer write to it; a harness without leases looks at the status to find out.
    """
    return _changed(tx, run, "cancel", "has ended already", "Cancelled", reason=reason, cascade=cascade)


@runs.writes("pause", "Pause a run that no worker holds.")
@click.argument("run")
def pause(tx: Transaction, run: str) -> Answer:
    """Pause a running run that no worker holds: nobody claims it until it is resumed. Exit code 1 if that cannot be done."""
    return _changed(tx, run, "pause", "does not run", "Paused")


@runs.writes("resume", "Let a paused run go on.")
@click.argument("run")
@click.option("--force", is_flag=True, help="Without an answer to its gates, which are rejected.")
def resume(tx: Transaction, run: str, force: bool) -> Answer:
    """Let a paused run go on: a worker claims it. Exit code 1 if it is not paused, or waits at a gate."""
    return _changed(tx, run, "resume", "is not paused", "Resumed", force=force)


@runs.writes("restart", "Run a failed or cancelled run again.")
@click.argument("run")
def restart(tx: Transaction, run: str) -> Answer:
    """Run a failed or cancelled run again: a worker claims it, and phases that are done stay done.

    Exit code 1 if it is neither.
    """
    return _changed(tx, run, "restart", "is neither failed nor cancelled", "Restarted")


@runs.writes("retry", "Queue a failed or cancelled run again.")
@click.argument("run")
def retry(tx: Transaction, run: str) -> Answer:
    """Queue a failed or cancelled run again, last in line: a worker claims it in its turn, and phases that are done stay done.

    Exit code 1 if it is neither.
    """
    return _changed(tx, run, "restart", "is neither failed nor cancelled", "Queued", then="requeue")


def _changed(tx: Transaction, id: str, verb: str, refusal: str, done: str, *, then: str | None = None, **options: Any) -> Answer:
    """The run after a verb, and the one `then`, changed it. Raises Failed with the refusal if the first returns False."""
    if not getattr(tx.workflows.runs, verb)(id, **options):
        raise Failed(f"The workflow run {id!r} {refusal}: it is {tx.workflows.runs.get(id).status}.")
    if then is not None:
        getattr(tx.workflows.runs, then)(id)
    run = tx.workflows.runs.get(id)
    return told(run, f"{done} {inline(run.id)}.")


def _counts(runs: Mapping[str, int], executions: ExecutionStats) -> Iterator[tuple[str, object]]:
    yield "runs", _listed(sum(runs.values()), runs)
    yield "executions", _listed(executions.total, {"today": executions.today, "running": executions.running})
    yield "skills", ", ".join(f"{name} {count:,}" for name, count in executions.by_skill.items()) or "none"


def _listed(total: int, counts: Mapping[str, int]) -> str:
    of = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
    return f"{total:,}" + (f" ({of})" if of else "")


def _day(day: StatsBucket) -> tuple[object, ...]:
    counts = (day.total, day.succeeded, day.failed, day.skipped, day.deferred, day.running)
    return day.bucket, *counts, tokens(day.total_tokens), cost(day.cost_usd)
