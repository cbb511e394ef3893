"""`persist approvals` and `persist signals`: the gates at which runs wait for a person, and what runs are told."""

import json
from typing import Any

import click

from persist.cli.database import Database, on_database, to_json
from persist.cli.nouns import Answer, Noun, Table, answers, told
from persist.cli.output import cut, inline
from persist.errors import Conflict, InvalidValue
from persist.store.transaction import Transaction
from persist.workflows.schemas import Approval, ApprovalKind, ApprovalStatus, RunStatus, Signal, WorkflowRun

_SHOWN = 60
approvals = Noun("approvals", "List and answer the gates at which workflow runs wait for a person.")
APPROVALS = Table[Approval](
    "Nothing waits for an answer.",
    ("APPROVAL", "RUN", "GATE", "KIND", "ASKED (UTC)", "EXPIRES (UTC)", "SUMMARY"),
    lambda one: (one.id, one.workflow_run_id, one.gate, one.kind, one.created_at, one.expires_at, cut(one.summary, _SHOWN)),
)


@approvals.reads("ls", "List what waits for an answer, the newest first.")
@click.option("--run", "workflow_run_id", metavar="ID", help="Only gates of this run.")
@click.option("--trigger", "trigger_id", metavar="ID", help="Only gates of this trigger's runs.")
@click.option(
    "--kind", type=click.Choice([kind.value for kind in ApprovalKind]), help="Only gates that want a decision, or a reply."
)
def ls(tx: Transaction, **wanted: Any) -> Answer:
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
    done = "Approved" if approve else "Rejected" if reject else "Replied to"
    return told(
        {"approval": answered, "run": run}, f"{done} {inline(answered.gate)}; run {inline(run.id)} is {inline(run.status)}."
    )


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


signals = Noun("signals", "Tell workflow runs something, and list what they were told.")
SIGNALS = Table[Signal](
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
