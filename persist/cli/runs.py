"""`persist runs`: the workflow runs of a database."""

from datetime import UTC, datetime
from typing import Any

import click

from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.failures import Failed
from persist.cli.groups import Group
from persist.cli.output import Paint, columns, cost, inline, instant, say, say_json, say_json_list, tokens
from persist.cli.run_lines import cut, family_lines, run_lines
from persist.cli.run_stats import stats
from persist.workflows.schemas import FailureKind, RunStatus, WorkflowRun, WorkflowRunSummary

_TRIGGER = 40


def _instant(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"expected an instant such as 2026-01-31 or 2026-01-31T12:00:00Z, got {value!r}.") from None


@click.group(cls=Group, short_help="List, show, pause, restart and cancel workflow runs.")
def runs() -> None:
    """List, show, pause, restart and cancel workflow runs."""


runs.add_command(stats)


@runs.command(short_help="List runs, the last started first.")
@on_named_database
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([status.value for status in RunStatus]),
    help="Only runs with this status; give it again for another one.",
)
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--trigger", metavar="ID", help="Only runs of this trigger.")
@click.option("--parent", metavar="ID", help="Only runs that were created for this run.")
@click.option(
    "--failure-kind",
    "failure_kind",
    type=click.Choice([kind.value for kind in FailureKind]),
    help="Only runs that failed or were cancelled for this reason.",
)
@click.option("--since", metavar="INSTANT", callback=_instant, help="Only runs started then or later; UTC unless it says.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="The page after the one that ended with this cursor.")
@as_json
@quiet("Print the ids alone.")
def ls(
    database: Database,
    statuses: tuple[str, ...],
    workflow: str | None,
    trigger: str | None,
    parent: str | None,
    failure_kind: str | None,
    since: datetime | None,
    limit: int,
    after: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """List runs, the last started first. With --json: an object with `items` and `cursor`, null on the last page."""
    with database.open(read_only=True) as store, store.read() as tx:
        page = tx.workflows.runs.list(
            status=statuses,
            workflow_name=workflow,
            trigger_id=trigger,
            parent_run_id=parent,
            failure_kind=failure_kind,
            since=since,
            limit=limit,
            after=after,
        )
    if as_json:
        say_json_list((run.model_dump(mode="json") for run in page.items), page.cursor)
    elif quiet:
        for run in page.items:
            say(inline(run.id))
    elif not page.items:
        say("No runs.", err=True)
    else:
        head = ("RUN", "WORKFLOW", "TRIGGER", "STATUS", "PHASE", "STARTED (UTC)", "TOKENS", "COST")
        first, *rows = columns([head, *map(_row, page.items)])
        say(Paint()(first, bold=True))
        for row in rows:
            say(row)
        if page.cursor is not None:
            say(f"There are more: add --after {page.cursor}", err=True)


@runs.command(short_help="Print one run and what became of its phases.")
@click.argument("run")
@on_database
@as_json
@quiet("Print the status alone.")
def show(run: str, database: Database, as_json: bool, quiet: bool) -> None:
    """Print one run: its context and scratch, the history of its phases, its executions, approvals and children.

    Long values are cut; with --json everything is there: an object with `run`, `executions`, `approvals`, `children` (the last 20
    that started) and `family`, the totals of the run and all its descendants.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        found = tx.workflows.runs.get(run)
        children, family = tx.workflows.runs.children(run), tx.workflows.runs.family(run)
        executions, approvals = tx.workflows.executions.for_run(run), tx.workflows.approvals.list_for_run(run)
    if as_json:
        say_json(
            {
                "run": found.model_dump(mode="json"),
                "executions": [execution.model_dump(mode="json") for execution in executions],
                "approvals": [approval.model_dump(mode="json") for approval in approvals],
                "children": [child.model_dump(mode="json") for child in children.items],
                "family": family.model_dump(mode="json"),
            }
        )
    elif quiet:
        say(inline(found.status))
    else:
        for line in run_lines(found, executions, approvals, Paint()):
            say(line)
        for line in family_lines(children.items, family, Paint()):
            say(line)


@runs.command(short_help="Cancel a run, whoever works on it.")
@click.argument("run")
@on_database
@click.option("--reason", help="Why; kept in the run's context as its error.")
@click.option("--cascade", is_flag=True, help="And everything below it that has not ended.")
@as_json
@quiet("Print nothing.")
def cancel(run: str, database: Database, reason: str | None, cascade: bool, as_json: bool, quiet: bool) -> None:
    """Cancel a run that has not ended, even if a worker holds it. Exit code 1 if it has, or if there is none.

    With --cascade its children and all that is below them are cancelled too, also if the run itself has ended.

    A worker that holds it cannot write to it any more; a harness without leases looks at the status to find out.
    """
    changed = _changed(database, run, "cancel", "has ended already", reason=reason, cascade=cascade)
    _say_changed(changed, "Cancelled", as_json=as_json, quiet=quiet)


@runs.command(short_help="Pause a run that no worker holds.")
@click.argument("run")
@on_database
@as_json
@quiet("Print nothing.")
def pause(run: str, database: Database, as_json: bool, quiet: bool) -> None:
    """Pause a running run that no worker holds: nobody claims it until it is resumed. Exit code 1 if that cannot be done."""
    changed = _changed(database, run, "pause", "does not run")
    _say_changed(changed, "Paused", as_json=as_json, quiet=quiet)


@runs.command(short_help="Let a paused run go on.")
@click.argument("run")
@on_database
@click.option("--force", is_flag=True, help="Without an answer to its gates, which are rejected.")
@as_json
@quiet("Print nothing.")
def resume(run: str, database: Database, force: bool, as_json: bool, quiet: bool) -> None:
    """Let a paused run go on: a worker claims it. Exit code 1 if it is not paused, or waits at a gate."""
    changed = _changed(database, run, "resume", "is not paused", force=force)
    _say_changed(changed, "Resumed", as_json=as_json, quiet=quiet)


@runs.command(short_help="Run a failed or cancelled run again.")
@click.argument("run")
@on_database
@as_json
@quiet("Print nothing.")
def restart(run: str, database: Database, as_json: bool, quiet: bool) -> None:
    """Run a failed or cancelled run again: a worker claims it, and phases that are done stay done.

    Exit code 1 if it is neither.
    """
    changed = _changed(database, run, "restart", "is neither failed nor cancelled")
    _say_changed(changed, "Restarted", as_json=as_json, quiet=quiet)


@runs.command(short_help="Queue a failed or cancelled run again.")
@click.argument("run")
@on_database
@as_json
@quiet("Print nothing.")
def retry(run: str, database: Database, as_json: bool, quiet: bool) -> None:
    """Queue a failed or cancelled run again, last in line: a worker claims it in its turn, and phases that are done stay done.

    Exit code 1 if it is neither.
    """
    changed = _changed(database, run, "restart", "is neither failed nor cancelled", then="requeue")
    _say_changed(changed, "Queued", as_json=as_json, quiet=quiet)


def _changed(database: Database, run: str, verb: str, refusal: str, *, then: str | None = None, **options: Any) -> WorkflowRun:
    """The run after a verb, and the one `then`, changed it. Raises Failed with the refusal if the first returns False."""
    with database.open_existing() as store, store.begin() as tx:
        if not getattr(tx.workflows.runs, verb)(run, **options):
            raise Failed(f"The workflow run {run!r} {refusal}: it is {tx.workflows.runs.get(run).status}.")
        if then is not None:
            getattr(tx.workflows.runs, then)(run)
        return tx.workflows.runs.get(run)


def _say_changed(run: WorkflowRun, done: str, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        say_json(run.model_dump(mode="json"))
    elif not quiet:
        say(f"{done} {inline(run.id)}.")


def _row(run: WorkflowRunSummary) -> tuple[str, ...]:
    return (
        inline(run.id),
        inline(run.workflow_name),
        cut(run.trigger_id, _TRIGGER),
        inline(run.status),
        inline(run.current_phase),
        instant(run.started_at),
        tokens(run.total_tokens),
        cost(run.cost_usd),
    )
