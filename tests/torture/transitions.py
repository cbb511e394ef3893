"""Workers that are killed between two transitions of a run, or within one; people who answer, recovery, overrides."""

from collections.abc import Sequence
from datetime import timedelta

from persist.store.transaction import Transaction
from persist.workflows.schemas import Lease
from tests.torture.kill_rounds import Script, Step

_LEASE = timedelta(seconds=5)


def claimed() -> Sequence[Step]:
    """Two queued runs: claimed, worked on under a lease, one of them paused for a person, and the worker lost."""
    return [
        lambda tx: tx.workflows.runs.create("deploy", trigger_id="push/1", current_phase="build", status="queued", id="one"),
        lambda tx: tx.workflows.runs.create(
            "deploy", trigger_id="push/2", current_phase="build", status="queued", id="two", context={"text": "x" * 3000}
        ),
        lambda tx: tx.workflows.runs.claim("worker-1", lease=_LEASE, workflow_name="deploy"),
        lambda tx: tx.workflows.executions.start(
            trigger_type="git", trigger_id="push/1", skill="deploy:build", workflow_run_id="one", id="e1", lease=_lease(tx, "one")
        ),
        lambda tx: tx.workflows.runs.renew(_lease(tx, "one"), lease_for=_LEASE),
        _finish_phase,
        lambda tx: tx.workflows.runs.merge_scratch("one", {"a": 1, "b": [2, 3]}, lease=_lease(tx, "one")),
        lambda tx: tx.workflows.approvals.pause_for_approval(
            "one", gate="review", summary="Look.", marker=("review", {"n": 1}), scratch={"asked": True}, lease=_lease(tx, "one")
        ),
        lambda tx: tx.workflows.runs.release(_lease(tx, "one")),
        lambda tx: tx.workflows.approvals.resolve_and_resume(_gate(tx, "one"), by="maria", scratch={"answer": "yes"}),
        lambda tx: tx.workflows.runs.claim("worker-2", lease=timedelta(seconds=2), workflow_name="deploy"),
        lambda tx: tx.workflows.executions.start(
            trigger_type="git", trigger_id="push/1", skill="deploy:ship", workflow_run_id="one", id="e2", lease=_lease(tx, "one")
        ),
        lambda tx: None,
        # worker-2 has been silent for longer than its lease: its execution is stale, and the run counts a restart
        lambda tx: tx.workflows.runs.claim("worker-3", lease=_LEASE, workflow_name="deploy"),
        lambda tx: tx.workflows.runs.finish("one", "succeeded", terminal_marker=("done", {"pr": 5}), lease=_lease(tx, "one")),
        lambda tx: tx.workflows.runs.claim("worker-3", lease=_LEASE, workflow_name="deploy"),
        lambda tx: tx.workflows.runs.cancel("two", reason="enough"),
        lambda tx: tx.workflows.runs.restart("two"),
        lambda tx: tx.workflows.runs.finish("two", "failed", error="no"),
    ]


def alone() -> Sequence[Step]:
    """One process, its gates and its restarts."""
    return [
        lambda tx: tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan", id="run", max_restarts=1),
        lambda tx: tx.workflows.executions.start(
            trigger_type="github", trigger_id="issue/1", skill="triage:plan", workflow_run_id="run", id="e1"
        ),
        lambda tx: tx.workflows.runs.recover_interrupted(),
        lambda tx: tx.workflows.executions.skip("triage:plan", "issue/1", reason="known", workflow_run_id="run"),
        lambda tx: tx.workflows.approvals.request("run", gate="ask", summary="Which?", kind="reply", id="ask"),
        lambda tx: tx.workflows.approvals.resolve_reply("ask", response="blue", by="maria"),
        lambda tx: tx.workflows.approvals.pause_for_approval("run", gate="go", summary="Go?", marker=("go", None)),
        lambda tx: tx.workflows.approvals.resolve_and_fail(_gate(tx, "run"), by="otto", reason="no"),
        lambda tx: tx.workflows.runs.restart("run"),
        lambda tx: tx.workflows.executions.start(
            trigger_type="github", trigger_id="issue/1", skill="triage:fix", workflow_run_id="run", id="e2"
        ),
        lambda tx: tx.workflows.executions.mark_stale("issue/1"),
        lambda tx: tx.workflows.executions.veto_latest("triage:fix", "issue/1", "bad", workflow_run_id="run"),
        lambda tx: tx.workflows.runs.pause("run"),
        lambda tx: tx.workflows.runs.resume("run"),
        lambda tx: tx.workflows.runs.recover_interrupted(),
        lambda tx: tx.workflows.workflow_overrides.set("triage", enabled=False, by="maria"),
        lambda tx: tx.workflows.cron_overrides.set("nightly", enabled=True, schedule="0 4 * * *"),
        lambda tx: tx.workflows.workflow_overrides.clear("triage"),
    ]


def _lease(tx: Transaction, run: str) -> Lease:
    """As whoever holds it would have it."""
    found = tx.workflows.runs.get(run)
    assert found.lease_owner is not None
    assert found.lease_expires_at is not None
    return Lease(run_id=run, worker=found.lease_owner, token=found.lease_token, expires_at=found.lease_expires_at, run=found)


def _gate(tx: Transaction, run: str) -> str:
    (gate,) = tx.workflows.approvals.pending(workflow_run_id=run)
    return gate.id


def _finish_phase(tx: Transaction) -> None:
    tx.workflows.executions.set_output("e1", "built " * 200, lease=_lease(tx, "one"))
    tx.workflows.executions.finish("e1", success=True, turns=3, cost_usd=0.25, lease=_lease(tx, "one"))
    tx.workflows.runs.append_phase("one", "build", {"execution": "e1"}, lease=_lease(tx, "one"))


SCRIPTS = [Script("workers", claimed), Script("one worker", alone)]
