"""`persist runs`, `approvals` and `signals`: workflow runs, what waits for a person, and what runs were told."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import click

from persist.cli.database import Database, on_database, to_json
from persist.cli.nouns import Answer, Noun, Table, answers, facts, known, pages, shown, table, told
from persist.cli.output import Paint, cost, cut, inline, instant, shortened, tokens
from persist.cli.root import Failed
from persist.errors import Conflict, InvalidValue
from persist.store.transaction import Transaction
from persist.workflows import schemas

_COLOURS: dict[str, str] = {
    schemas.Outcome.SUCCEEDED: "green",
    schemas.Outcome.FAILED: "red",
    schemas.Outcome.RUNNING: "yellow",
    schemas.ApprovalStatus.APPROVED: "green",
    schemas.ApprovalStatus.REJECTED: "red",
    schemas.ApprovalStatus.PENDING: "yellow",
    "cancelled": "red",
    "paused": "yellow",
}
_ITEM = ("phase", "timestamp")


def run_lines(
    run: schemas.WorkflowRun, executions: Sequence[schemas.Execution], approvals: Sequence[schemas.Approval], paint: Paint
) -> Iterator[str]:
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


def family_lines(children: Sequence[schemas.WorkflowRunSummary], family: schemas.FamilyTotals, paint: Paint) -> Iterator[str]:
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


def _facts(run: schemas.WorkflowRun, executions: Sequence[schemas.Execution]) -> Iterator[tuple[str, object]]:
    yield from facts(run, run="id", workflow="workflow_name", trigger="trigger_id", repository="repo")
    yield "issue", None if run.issue_number is None else f"#{run.issue_number}"
    yield from facts(run, status="status", phase="current_phase")
    if run.restart_count:
        yield "restarts", f"{run.restart_count:,}" + ("" if run.max_restarts is None else f" of at most {run.max_restarts:,}")
    yield "parent", run.parent_run_id
    if run.join_until is not None and run.status == schemas.RunStatus.PAUSED:
        yield (
            "waits for",
            "its children" + (", or the first that fails" if run.join_until == schemas.JoinUntil.FIRST_FAILURE else ""),
        )
    if run.lease_owner is not None and run.lease_expires_at is not None:
        yield "worker", f"{run.lease_owner} until {instant(run.lease_expires_at)} UTC"
    yield "tokens", tokens(sum(_tokens(execution) for execution in executions))
    yield "cost", cost(sum(execution.cost_usd or 0.0 for execution in executions))
    yield from facts(run, started="started_at", updated="updated_at", finished="finished_at")


def _tokens(execution: schemas.Execution) -> int:
    return (execution.input_tokens or 0) + (execution.output_tokens or 0) + (execution.cache_read_input_tokens or 0)


def _phase(item: Any) -> str:
    """One entry of the history; files that others wrote may hold anything."""
    if not isinstance(item, dict):
        return f"  {shortened(item)}"
    rest = {name: value for name, value in item.items() if name not in _ITEM}
    heads = [inline(str(item.get(name, "?"))) for name in reversed(_ITEM)]
    return "  ".join(["", *heads, *([shortened(rest)] if rest else [])])


def _execution(execution: schemas.Execution, paint: Paint) -> Iterator[str]:
    outcome = paint(execution.outcome, fg=_COLOURS.get(execution.outcome))
    used = f"{tokens(_tokens(execution))} tokens, {cost(execution.cost_usd)}"
    id = paint(inline(execution.id), dim=True)
    yield f"  {instant(execution.started_at)}  {inline(execution.skill)}  {outcome}  {used}  {id}"
    if execution.session_id is not None:
        yield f"    session {inline(execution.session_id)}"
    if execution.error is not None:
        yield f"    error   {shortened(execution.error)}"


def _approval(approval: schemas.Approval, paint: Paint) -> Iterator[str]:
    status = paint(inline(approval.status), fg=_COLOURS.get(approval.status))
    by = "" if approval.responded_by is None else f" by {inline(approval.responded_by)}"
    when = "" if approval.responded_at is None else f" at {instant(approval.responded_at)}"
    yield f"  {instant(approval.created_at)}  {inline(approval.gate)}  {status}{by}{when}  {paint(inline(approval.id), dim=True)}"
    yield f"    {inline(approval.kind):<7} {shortened(approval.summary)}"
    if approval.expires_at is not None and approval.status == schemas.ApprovalStatus.PENDING:
        then = inline(approval.on_expiry or schemas.OnExpiry.REJECTED)
        yield f"    expires {instant(approval.expires_at)} UTC, then it is {then}"
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
RUNS = Table[schemas.WorkflowRunSummary](
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
    type=click.Choice([status.value for status in schemas.RunStatus]),
    help="Only runs with this status; give it again for another one.",
)
@click.option("--workflow", "workflow_name", metavar="NAME", help="Only runs of this workflow.")
@click.option("--trigger", "trigger_id", metavar="ID", help="Only runs of this trigger.")
@click.option("--parent", "parent_run_id", metavar="ID", help="Only runs that were created for this run.")
@click.option(
    "--failure-kind",
    "failure_kind",
    type=click.Choice([kind.value for kind in schemas.FailureKind]),
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
    counts = {status.value: tx.workflows.runs.count(status=status) for status in schemas.RunStatus}
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


def _counts(runs: Mapping[str, int], executions: schemas.ExecutionStats) -> Iterator[tuple[str, object]]:
    yield "runs", _listed(sum(runs.values()), runs)
    yield "executions", _listed(executions.total, {"today": executions.today, "running": executions.running})
    yield "skills", ", ".join(f"{name} {count:,}" for name, count in executions.by_skill.items()) or "none"


def _listed(total: int, counts: Mapping[str, int]) -> str:
    of = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
    return f"{total:,}" + (f" ({of})" if of else "")


def _day(day: schemas.StatsBucket) -> tuple[object, ...]:
    counts = (day.total, day.succeeded, day.failed, day.skipped, day.deferred, day.running)
    return day.bucket, *counts, tokens(day.total_tokens), cost(day.cost_usd)


_SHOWN = 60
approvals = Noun("approvals", "List and answer the gates at which workflow runs wait for a person.")
APPROVALS = Table[schemas.Approval](
    "Nothing waits for an answer.",
    ("APPROVAL", "RUN", "GATE", "KIND", "ASKED (UTC)", "EXPIRES (UTC)", "SUMMARY"),
    lambda one: (one.id, one.workflow_run_id, one.gate, one.kind, one.created_at, one.expires_at, cut(one.summary, _SHOWN)),
)


@approvals.reads("ls", "List what waits for an answer, the newest first.")
@click.option("--run", "workflow_run_id", metavar="ID", help="Only gates of this run.")
@click.option("--trigger", "trigger_id", metavar="ID", help="Only gates of this trigger's runs.")
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in schemas.ApprovalKind]),
    help="Only gates that want a decision, or a reply.",
)
def list_approvals(tx: Transaction, **wanted: Any) -> Answer:
    """List what waits for an answer, the newest first. With --json: an object with `items` and `cursor`."""
    return APPROVALS.all(tx.workflows.approvals.pending(**wanted))


@approvals.command(short_help="Answer a gate: its run goes on, or fails.")
@click.argument("approval")
@on_database
@click.option("--approve", is_flag=True, help="Yes: the run goes on.")
@click.option("--reject", is_flag=True, help="No: the run fails.")
@click.option("--reply", metavar="TEXT", help="What a gate that wants a reply is told: the run goes on.")
@click.option("--by", metavar="WHO", help="Who answers; without it the actor of `persist --actor`.")
@click.option("--reason", metavar="TEXT", help="Why, with --approve or --reject.")
@answers("Print nothing.")
def answer(
    database: Database, approval: str, approve: bool, reject: bool, reply: str | None, by: str | None, reason: str | None
) -> Answer:
    """Answer a gate: its run goes on, or with --reject fails. Exit code 1 if it was answered already.

    A gate that wants a reply takes --reply or --reject. With --json: an object with `approval` and `run`.
    """
    if approve + reject + (reply is not None) != 1:
        raise click.UsageError("Give one of --approve, --reject and --reply TEXT.")
    if reply is not None and reason is not None:
        raise click.UsageError("--reason goes with --approve or --reject; a reply says it all.")
    with database.open_existing() as store, store.begin() as tx:
        return answer_gate(tx, approval, approved=not reject, reply=reply, by=by, reason=reason)


def answer_gate(
    tx: Transaction, approval: str, *, approved: bool, reply: str | None = None, by: str | None = None, reason: str | None = None
) -> Answer:
    """Answer a gate of either kind, whatever its run does. Raises InvalidValue for the wrong kind of answer, and Conflict."""
    gate = tx.workflows.approvals.get(approval)
    status = tx.workflows.runs.get(gate.workflow_run_id).status
    if approved:
        _check_kind(gate, reply)
    response = reason if reply is None else reply
    if status == schemas.RunStatus.QUEUED or (status == schemas.RunStatus.RUNNING and approved):
        run = _answer_alone(tx, gate, by, response, approved=approved)
    elif approved:
        run = tx.workflows.approvals.resolve_and_resume(approval, by=by, response=response)
    else:
        run = tx.workflows.approvals.resolve_and_fail(approval, by=by, reason=reason)
    answered = tx.workflows.approvals.get(approval)
    done = "Rejected" if not approved else "Approved" if reply is None else "Replied to"
    return told(
        {"approval": answered, "run": run}, f"{done} {inline(answered.gate)}; run {inline(run.id)} is {inline(run.status)}."
    )


def _check_kind(gate: schemas.Approval, reply: str | None) -> None:
    """Raises InvalidValue for a reply to a gate that wants a decision, and for a decision on one that wants a reply."""
    if gate.status == schemas.ApprovalStatus.PENDING and (gate.kind == schemas.ApprovalKind.REPLY) != (reply is not None):
        wanted = "a decision: --approve or --reject" if reply is not None else "a reply: --reply TEXT, or --reject"
        raise InvalidValue("answer", f"the approval {gate.id!r} wants {wanted}.")


def _answer_alone(
    tx: Transaction, gate: schemas.Approval, by: str | None, response: str | None, *, approved: bool
) -> schemas.WorkflowRun:
    """Answer the gate of a run that was not paused for it, and return the run, unchanged."""
    if not tx.workflows.approvals.respond(gate.id, approved=approved, by=by, response=response):
        raise Conflict(f"The approval {gate.id!r} is not pending: it was {gate.status} already.")
    return tx.workflows.runs.get(gate.workflow_run_id)


signals = Noun("signals", "Tell workflow runs something, and list what they were told.")
SIGNALS = Table[schemas.Signal](
    "The run was told nothing.",
    ("SEQ", "NAME", "SENT (UTC)", "TAKEN (UTC)", "PAYLOAD"),
    lambda one: (
        str(one.seq),
        one.name,
        one.sent_at,
        one.taken_at,
        "(timed out)" if one.timed_out else cut(json.dumps(one.payload, ensure_ascii=False), _SHOWN),
    ),
    name=lambda one: one.name,
)


@signals.writes("send", "Tell a run something: if it waits for that, it goes on.")
@click.argument("run")
@click.argument("name")
@click.option("--payload", metavar="JSON", default="null", callback=to_json, help="What the run gets with it.")
@click.option("--key", metavar="KEY", help="Of all signals to the run with one key the first is sent.")
def send(tx: Transaction, run: str, name: str, payload: Any, key: str | None) -> Answer:
    """Tell a run something. A run that waits for a signal of this NAME goes on; any other run finds the signal later."""
    signal = tx.workflows.signals.send(run, name, payload, idempotency_key=key)
    status = tx.workflows.runs.get(run).status
    return told(signal, f"Sent {inline(signal.name)}; run {inline(run)} is {inline(status)}.")


@signals.reads("ls", "List what a run was told, in its order.", quiet="Print the names alone.")
@click.argument("run")
def list_signals(tx: Transaction, run: str) -> Answer:
    """List what a run was told, taken or not. With --json: an object with `items` and `cursor`."""
    return SIGNALS.all(tx.workflows.signals.list(run))
