"""`persist approvals`, on both databases."""

import json
import os

import pytest

from persist import Store
from persist.testing import FrozenClock
from persist.workflows.schemas import Approval, WorkflowRun
from tests.cases import each
from tests.cli.conftest import Command

pytestmark = pytest.mark.one_database

GATES = {"decision": "approve", "question": "reply"}


@pytest.fixture
def gates(database_url: str, clock: FrozenClock) -> dict[str, Approval]:
    """A gate that wants a decision, and a later one that wants a reply, each with a run that waits."""
    made = {}
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        for gate, kind in GATES.items():
            run = tx.workflows.runs.create("triage", trigger_id=f"issue/{gate}", current_phase="plan")
            summary = f"{gate}\x1b[2J {'long ' * 20}"
            made[gate] = tx.workflows.approvals.pause_for_approval(
                run.id,
                gate=gate,
                summary=summary,
                marker=(gate, None),
                kind=kind,  # type: ignore[arg-type]  # one of the two words
            )
            clock.advance(seconds=1)
    return made


def state(database_url: str, approval: Approval) -> tuple[Approval, WorkflowRun]:
    with Store.open(database_url) as store, store.read() as tx:
        return tx.workflows.approvals.get(approval.id), tx.workflows.runs.get(approval.workflow_run_id)


def test_ls_shows_the_newest_first(command: Command, gates: dict[str, Approval]) -> None:
    result = command("approvals", "ls")
    head, *rows = result.stdout.splitlines()
    assert head.split() == ["APPROVAL", "RUN", "GATE", "KIND", "ASKED", "(UTC)", "EXPIRES", "(UTC)", "SUMMARY"]
    question, decision = gates["question"], gates["decision"]
    assert rows[0].split()[:6] == [question.id, question.workflow_run_id, "question", "reply", "2026-01-02", "03:04:06"]
    assert rows[1].split()[0] == decision.id
    assert "question\\x1b[2J long" in rows[0]
    assert rows[0].endswith("…")


def test_ls_filters(command: Command, gates: dict[str, Approval]) -> None:
    decision, question = (f"{gates[name].id}\n" for name in GATES)
    assert command("approvals", "ls", "-q").stdout == question + decision
    assert command("approvals", "ls", "-q", "--kind", "reply").stdout == question
    assert command("approvals", "ls", "-q", "--trigger", "issue/decision").stdout == decision
    assert command("approvals", "ls", "-q", "--run", gates["decision"].workflow_run_id).stdout == decision
    assert command("approvals", "ls", "-q", "--run", "run_nobody").stdout == ""
    assert command("approvals", "ls", "--kind", "shrug").exit_code == 2


def test_ls_json(command: Command, gates: dict[str, Approval]) -> None:
    found = json.loads(command("approvals", "ls", "--json").stdout)
    assert found == {"items": [gates[name].model_dump(mode="json") for name in ("question", "decision")], "cursor": None}


def test_approving_resumes_the_run(command: Command, gates: dict[str, Approval], database_url: str) -> None:
    gate = gates["decision"]
    result = command("approvals", "answer", gate.id, "--approve", "--by", "maria", "--reason", "looks good")
    assert (result.exit_code, result.stdout) == (0, f"Approved decision; run {gate.workflow_run_id} is running.\n")
    approval, run = state(database_url, gate)
    assert (approval.status, approval.responded_by, approval.response) == ("approved", "maria", "looks good")
    assert run.status == "running"
    assert command("approvals", "ls", "-q").stdout == f"{gates['question'].id}\n"


@pytest.mark.parametrize("name", list(GATES))
def test_rejecting_fails_the_run(command: Command, gates: dict[str, Approval], database_url: str, name: str) -> None:
    result = command("approvals", "answer", gates[name].id, "--reject", "--reason", "too early")
    assert result.stdout == f"Rejected {name}; run {gates[name].workflow_run_id} is failed.\n"
    approval, run = state(database_url, gates[name])
    assert (approval.status, approval.responded_by) == ("rejected", None)
    assert run.status == "failed"
    assert run.context == {"error": "Rejected: too early"}


def test_replying_resumes_the_run(command: Command, gates: dict[str, Approval], database_url: str) -> None:
    result = command("approvals", "answer", gates["question"].id, "--reply", "use blue", "--by", "maria", "--json")
    approval, run = state(database_url, gates["question"])
    assert json.loads(result.stdout) == {"approval": approval.model_dump(mode="json"), "run": run.model_dump(mode="json")}
    assert (approval.status, approval.responded_by, approval.response) == ("approved", "maria", "use blue")
    assert run.status == "running"


@each(
    ("status", "answer", "then"),
    [
        ("queued", "--approve", "queued"),
        ("queued", "--reject", "queued"),
        ("running", "--approve", "running"),
        ("running", "--reject", "failed"),
    ],
)
def test_a_gate_that_its_run_was_not_paused_for_is_answered_too(
    command: Command, database_url: str, status: str, answer: str, then: str
) -> None:
    with Store.open(database_url) as store, store.begin() as tx:
        run = tx.workflows.runs.create("triage", trigger_id="t", current_phase="plan", status=status)
        gate = tx.workflows.approvals.request(run.id, gate="g", summary="?")
    result = command("approvals", "answer", gate.id, answer)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith(f"run {run.id} is {then}.\n")
    assert command("approvals", "ls", "-q").stdout == ""


@pytest.mark.parametrize("again", [("--approve",), ("--reject",), ("--reply", "no")], ids=lambda again: again[0])
def test_what_was_answered_stays_answered(
    command: Command, gates: dict[str, Approval], database_url: str, again: tuple[str, ...]
) -> None:
    gate = gates["decision"]
    assert command("approvals", "answer", gate.id, "--approve", "-q").output == ""
    before = state(database_url, gate)
    result = command("approvals", "answer", gate.id, *again)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: The approval '{gate.id}' is not pending: it was approved already.\n"
    assert state(database_url, gate) == before


@pytest.mark.parametrize(
    ("name", "answer", "said"), [("decision", ("--reply", "blue"), "--approve"), ("question", ("--approve",), "--reply")]
)
def test_an_answer_of_the_other_kind_is_refused(
    command: Command, gates: dict[str, Approval], database_url: str, name: str, answer: tuple[str, ...], said: str
) -> None:
    result = command("approvals", "answer", gates[name].id, *answer)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert said in result.stderr
    approval, run = state(database_url, gates[name])
    assert (approval.status, run.status) == ("pending", "paused")


@each(
    "answer",
    [(), ("--approve", "--reject"), ("--approve", "--reply", "x"), ("--reply", "x", "--reason", "y"), ("--reply",)],
    ids=" ".join,
)
def test_an_answer_called_wrongly(
    command: Command, gates: dict[str, Approval], database_url: str, answer: tuple[str, ...]
) -> None:
    result = command("approvals", "answer", gates["question"].id, *answer)
    assert (result.exit_code, result.stdout) == (2, "")
    assert state(database_url, gates["question"])[0].status == "pending"


def test_a_run_that_ended_meanwhile_stays_ended(command: Command, gates: dict[str, Approval], database_url: str) -> None:
    gate = gates["decision"]
    command("runs", "cancel", gate.workflow_run_id)
    result = command("approvals", "answer", gate.id, "--approve")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "is not pending: it was rejected already" in result.stderr
    assert state(database_url, gate)[1].status == "cancelled"


def test_the_actor_of_a_command_is_in_its_events_and_answers(
    command: Command, database_url: str, gates: dict[str, Approval]
) -> None:
    with Store.open(database_url, events=True):
        pass
    before = dict(os.environ)
    gate = gates["decision"]
    assert command("--actor", "maria\x1b[2J", "approvals", "answer", gate.id, "--approve").exit_code == 0
    assert dict(os.environ) == before
    approval, run = state(database_url, gate)
    assert approval.responded_by == "maria\x1b[2J"
    watched = command("watch", f"workflow:{run.id}", "--timeout", "0", "--json").stdout.splitlines()
    actors = [json.loads(line)["actor"] for line in watched]
    assert actors[0] is None
    assert set(actors[1:]) == {"maria\x1b[2J"}
    assert "by maria\\x1b[2J" in command("watch", "--timeout", "0").stdout
    refused = command("--actor", "x" * 700, "approvals", "ls")
    assert refused.exit_code == 1
    assert "actor" in refused.stderr
