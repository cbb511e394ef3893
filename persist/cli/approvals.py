"""`persist approvals`: the gates at which runs wait for a person."""

import click

from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.groups import Group
from persist.cli.output import Paint, columns, inline, instant, say, say_json, say_json_list
from persist.cli.run_lines import cut
from persist.errors import Conflict, InvalidValue
from persist.store.transaction import Transaction
from persist.workflows.schemas import Approval, ApprovalKind, ApprovalStatus, RunStatus, WorkflowRun

_SUMMARY = 60


@click.group(cls=Group, short_help="List and answer what waits for a person.")
def approvals() -> None:
    """List and answer the gates at which workflow runs wait for a person."""


@approvals.command(short_help="List what waits for an answer, the newest first.")
@on_named_database
@click.option("--run", metavar="ID", help="Only gates of this run.")
@click.option("--trigger", metavar="ID", help="Only gates of this trigger's runs.")
@click.option(
    "--kind", type=click.Choice([kind.value for kind in ApprovalKind]), help="Only gates that want a decision, or a reply."
)
@as_json
@quiet("Print the ids alone.")
def ls(database: Database, run: str | None, trigger: str | None, kind: str | None, as_json: bool, quiet: bool) -> None:
    """List what waits for an answer, the newest first. With --json: an object with `items` and `cursor`."""
    with database.open(read_only=True) as store, store.read() as tx:
        pending = tx.workflows.approvals.pending(workflow_run_id=run, trigger_id=trigger, kind=kind)
    if as_json:
        say_json_list(approval.model_dump(mode="json") for approval in pending)
    elif quiet:
        for approval in pending:
            say(inline(approval.id))
    elif not pending:
        say("Nothing waits for an answer.", err=True)
    else:
        head, *rows = columns(
            [("APPROVAL", "RUN", "GATE", "KIND", "ASKED (UTC)", "EXPIRES (UTC)", "SUMMARY"), *map(_row, pending)]
        )
        say(Paint()(head, bold=True))
        for row in rows:
            say(row)


@approvals.command(short_help="Answer a gate: its run goes on, or fails.")
@click.argument("approval")
@on_database
@click.option("--approve", is_flag=True, help="Yes: the run goes on.")
@click.option("--reject", is_flag=True, help="No: the run fails.")
@click.option("--reply", metavar="TEXT", help="What a gate that wants a reply is told: the run goes on.")
@click.option("--by", metavar="WHO", help="Who answers; without it the actor of `persist --actor`.")
@click.option("--reason", metavar="TEXT", help="Why, with --approve or --reject.")
@as_json
@quiet("Print nothing.")
def answer(
    approval: str,
    database: Database,
    approve: bool,
    reject: bool,
    reply: str | None,
    by: str | None,
    reason: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Answer a gate: its run goes on, or with --reject fails. Exit code 1 if it was answered already.

    A gate that wants a reply takes --reply or --reject. With --json: an object with `approval` and `run`.
    """
    if approve + reject + (reply is not None) != 1:
        raise click.UsageError("Give one of --approve, --reject and --reply TEXT.")
    if reply is not None and reason is not None:
        raise click.UsageError("--reason goes with --approve or --reject; a reply says it all.")
    with database.open_existing() as store, store.begin() as tx:
        gate = tx.workflows.approvals.get(approval)
        status = tx.workflows.runs.get(gate.workflow_run_id).status
        if not reject:
            _check_kind(gate, reply)
        response = reason if reply is None else reply
        if status == RunStatus.QUEUED or (status == RunStatus.RUNNING and not reject):
            run = _answer_alone(tx, gate, by, response, approved=not reject)
        elif reject:
            run = tx.workflows.approvals.resolve_and_fail(approval, by=by, reason=reason)
        else:
            run = tx.workflows.approvals.resolve_and_resume(approval, by=by, response=response)
        answered = tx.workflows.approvals.get(approval)
    if as_json:
        say_json({"approval": answered.model_dump(mode="json"), "run": run.model_dump(mode="json")})
    elif not quiet:
        done = "Approved" if approve else "Rejected" if reject else "Replied to"
        say(f"{done} {inline(answered.gate)}; run {inline(run.id)} is {inline(run.status)}.")


def _check_kind(gate: Approval, reply: str | None) -> None:
    """Raises InvalidValue for a reply to a gate that wants a decision, and for a decision on one that wants a reply."""
    if gate.status == ApprovalStatus.PENDING and (gate.kind == ApprovalKind.REPLY) != (reply is not None):
        wanted = "a decision: --approve or --reject" if reply is not None else "a reply: --reply TEXT, or --reject"
        raise InvalidValue("answer", f"the approval {gate.id!r} wants {wanted}.")


def _answer_alone(tx: Transaction, gate: Approval, by: str | None, response: str | None, *, approved: bool) -> WorkflowRun:
    """Answer the gate of a run that was not paused for it, and return the run, unchanged."""
    if not tx.workflows.approvals.respond(gate.id, approved=approved, by=by, response=response):
        raise Conflict(f"The approval {gate.id!r} is not pending: it was {gate.status} already.")
    return tx.workflows.runs.get(gate.workflow_run_id)


def _row(approval: Approval) -> tuple[str, ...]:
    return (
        inline(approval.id),
        inline(approval.workflow_run_id),
        inline(approval.gate),
        inline(approval.kind),
        instant(approval.created_at),
        "-" if approval.expires_at is None else instant(approval.expires_at),
        cut(approval.summary, _SUMMARY),
    )
