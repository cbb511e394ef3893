"""`persist runs`: the workflow runs of a database."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import click

from persist.cli.failures import Failed
from persist.cli.nouns import Answer, Noun, Table, pages, shown, table, told
from persist.cli.output import Paint, cost, cut, inline, tokens
from persist.cli.run_lines import family_lines, run_lines
from persist.store.transaction import Transaction
from persist.workflows.schemas import ExecutionStats, FailureKind, RunStatus, StatsBucket, WorkflowRunSummary

_TRIGGER = 40


def _instant(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"expected an instant such as 2026-01-31 or 2026-01-31T12:00:00Z, got {value!r}.") from None


runs = Noun("runs", "List, show, pause, restart and cancel workflow runs.")
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
        {"runs": counts, "executions": executions, "days": buckets},
        _counts(counts, executions),
        table(head, map(_day, buckets)),
    )


@runs.writes("cancel", "Cancel a run, whoever works on it.")
@click.argument("run")
@click.option("--reason", help="Why; kept in the run's context as its error.")
@click.option("--cascade", is_flag=True, help="And everything below it that has not ended.")
def cancel(tx: Transaction, run: str, reason: str | None, cascade: bool) -> Answer:
    """Cancel a run that has not ended, even if a worker holds it. Exit code 1 if it has, or if there is none.

    With --cascade its children and all that is below them are cancelled too, also if the run itself has ended.

    A worker that holds it cannot write to it any more; a harness without leases looks at the status to find out.
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
