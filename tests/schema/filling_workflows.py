"""Something of every table of workflows and messaging, made through the public API, and what a reader sees of it."""

from datetime import timedelta
from typing import Any

from persist import Store
from persist.store.transaction import Transaction
from persist.testing import FrozenClock

HARD = "Naïve\x00 text \ud83d stays what it was."
"""Text that a column of Postgres, or an encoder, would change if it could."""

_TRIGGER = "example/project#42"


def fill_workflows(store: Store, clock: FrozenClock) -> None:
    """Runs in every status, one of them leased and one restarted; executions, gates and overrides of every kind."""
    with store.begin() as tx:
        runs, executions, approvals = tx.workflows.runs, tx.workflows.executions, tx.workflows.approvals
        run = runs.create(
            "triage",
            trigger_id=_TRIGGER,
            current_phase="plan",
            repo="example/project",
            issue_number=42,
            context={"title": HARD, "numbers": [0.5, 1e300, -(2**63), 2**64 - 1]},
            max_restarts=5,
        )
        lost = executions.start(
            trigger_type="github", trigger_id=_TRIGGER, skill="triage:plan", workflow_run_id=run.id, session_id="log-1"
        )
        clock.advance(seconds=3)
        runs.recover_interrupted()
        plan = executions.start(
            trigger_type="github",
            trigger_id=_TRIGGER,
            skill="triage:plan",
            workflow_run_id=run.id,
            repo="example/project",
            issue_number=42,
        )
        clock.advance(seconds=1)
        executions.set_output(plan.id, HARD)
        executions.finish(
            plan.id,
            success=True,
            turns=4,
            duration_ms=1000,
            cost_usd=0.25,
            input_tokens=1000,
            output_tokens=50,
            cache_creation_input_tokens=7,
            cache_read_input_tokens=600,
            api_duration_ms=900,
            session_id="log-2",
            stop_reason="end_turn",
            extension_status={"browser": {"ok": True, "note": HARD}},
        )
        runs.append_phase(run.id, "plan", {"execution": plan.id, "lost": lost.id})
        runs.merge_scratch(run.id, {"branch": "fix/42", "note": HARD})
        runs.update_node_status(run.id, "plan", {"state": "done"})
        effects = tx.workflows.effects
        effects.begin(run.id, "comment", {"body": HARD})
        effects.complete(run.id, "comment", {"url": HARD, "numbers": [0.5, 2**63]})
        effects.begin(run.id, "label")
        effects.fail(run.id, "label", HARD)
        effects.begin(run.id, "merge", [1])
        tx.workflows.signals.send(run.id, "paid", {"note": HARD, "numbers": [0.5, 2**63]}, idempotency_key="once")
        tx.workflows.signals.send(run.id, "paid")
        tx.workflows.signals.take(run.id, "paid")
        executions.skip("triage:lint", _TRIGGER, reason=HARD, workflow_run_id=run.id)
        first = approvals.pause_for_approval(run.id, gate="review", summary=HARD, marker=("review", 5), requested_by="bot")
        approvals.resolve_and_resume(first.id, by="maria", response=HARD, scratch={"reviewed": True})
        approvals.pause_for_approval(run.id, gate="colour", summary="Which one?", marker=("colour", None), kind="reply")
        clock.advance(delta=timedelta(milliseconds=5))
        keyed = runs.create("triage", trigger_id="issue/3", current_phase="plan", idempotency_key="once", unique_trigger=True)
        executions.start(trigger_type="cron", trigger_id="issue/3", skill="triage:plan", idempotency_key="once")
        approvals.request(keyed.id, gate="review", summary="?", idempotency_key="once")
        refused = runs.create("triage", trigger_id="issue/2", current_phase="plan")
        gate = approvals.pause_for_approval(refused.id, gate="review", summary="Really?", marker=("review", {}))
        approvals.resolve_and_fail(gate.id, by="otto", reason="not now")
        done = runs.create("deploy", trigger_id="push/1", current_phase="build")
        runs.finish(done.id, "succeeded", terminal_marker=("done", {"pr": 5}))
        runs.cancel(runs.create("deploy", trigger_id="push/2", current_phase="build").id, reason=HARD)
        clock.advance(seconds=1)
        runs.create("deploy", trigger_id="push/3", current_phase="build", status="queued")
        lease = runs.claim("worker-1", lease=timedelta(minutes=5), workflow_name="deploy")
        assert lease is not None
        runs.create("notify", trigger_id="push/3", current_phase="tell", status="queued")
        told = runs.claim("worker-2", lease=timedelta(minutes=5), workflow_name="notify")
        assert told is not None
        tx.workflows.signals.wait(told, "answer", timeout=timedelta(hours=1))
        executions.start(
            trigger_type="push", trigger_id="push/3", skill="deploy:build", workflow_run_id=lease.run_id, lease=lease
        )
        runs.create("deploy", trigger_id="push/4", current_phase="build", status="queued")
        about: dict[str, Any] = {"trigger_id": "timer/1", "current_phase": "read", "status": "queued"}
        runs.create("import", **about, priority=3, max_attempts=2)
        attempt = runs.claim("worker-2", lease=timedelta(minutes=5), workflow_name="import")
        assert attempt is not None
        runs.release(attempt, retry_in=timedelta(hours=1), error=HARD)
        runs.create("import", **about, not_before=clock() + timedelta(days=1))
        runs.create("release", trigger_id="tag/1", current_phase="start", status="queued")
        parent = runs.claim("worker-3", lease=timedelta(minutes=5), workflow_name="release")
        assert parent is not None
        child = runs.create("publish", trigger_id="tag/1", current_phase="ask", parent_run_id=parent.run_id)
        runs.create("publish", trigger_id="tag/1", current_phase="build", parent_run_id=child.id, status="failed")
        runs.join(parent, "first_failure")
        question: dict[str, Any] = {"gate": "publish", "summary": HARD, "expires_at": clock() + timedelta(seconds=1)}
        approvals.pause_for_approval(child.id, marker=("ask", None), on_expiry="resumed", **question)
        approvals.request(child.id, **{**question, "expires_at": clock() + timedelta(days=1)}, on_expiry="approved")
        schedules = tx.workflows.schedules
        schedules.set("tick", workflow_name="import", cron="* * * * *", context={"note": HARD}, catch_up="all")
        schedules.set("sunday", workflow_name="import", cron="0 4 * * sun", timezone="Europe/Berlin", enabled=False)
        clock.advance(seconds=60)
        schedules.fire_due()
        approvals.expire_due()
        tx.workflows.limits.set("tenant/7", concurrency=2, rate=10, per=timedelta(hours=1))
        tx.workflows.limits.set("workflow:import", concurrency=5)
        runs.create("sync", **about, concurrency_key="tenant/7")
        assert runs.claim("worker-3", lease=timedelta(minutes=5), workflow_name="sync") is not None
        tx.workflows.cron_overrides.set("nightly", enabled=False, schedule="0 4 * * *", by="maria")
        tx.workflows.workflow_overrides.set("deploy", enabled=False, by="otto")


def fill_messaging(store: Store, clock: FrozenClock) -> None:
    """An active session with messages, one that is over, and what the agent did for the chat."""
    with store.begin() as tx:
        sessions = tx.messaging.sessions
        over = sessions.get_or_create(platform="slack", channel_id="C1", user_id="U1")
        tx.messaging.messages.add(over.id, role="user", content="Hello?")
        sessions.deactivate(over.id)
        clock.advance(seconds=1)
        session = sessions.get_or_create(platform="slack", channel_id="C1", user_id="U1", thread_id="171.5")
        sessions.set_agent_session(session.id, "log-3")
        tx.messaging.messages.add(session.id, role="user", content=HARD, platform_message_id="171.6")
        sessions.touch(session.id)
        turn = tx.workflows.executions.start(trigger_type="slack", trigger_id=session.id, skill="chat")
        clock.advance(seconds=2)
        tx.workflows.executions.finish(turn.id, success=False, error=HARD, stop_reason="error_quota", input_tokens=10)
        tx.messaging.messages.add(session.id, role="assistant", content="Since noon.")


def workflows_seen(tx: Transaction) -> dict[str, Any]:
    """Every record whole, by its id or name."""
    workflows = tx.workflows
    runs = [workflows.runs.get(run.id) for run in workflows.runs.list(limit=1000).items]
    executions = workflows.executions.list(limit=1000).items
    approvals = [approval for run in runs for approval in workflows.approvals.list_for_run(run.id)]
    return {
        "runs": {run.id: run.model_dump(mode="json") for run in runs},
        "executions": {execution.id: execution.model_dump(mode="json") for execution in executions},
        "outputs": {execution.id: {"text": workflows.executions.output_text(execution.id)} for execution in executions},
        "effects": {
            f"{effect.run_id}/{effect.key}": effect.model_dump(mode="json")
            for run in runs
            for effect in workflows.effects.list(run.id)
        },
        "signals": {
            f"{signal.run_id}/{signal.seq}": signal.model_dump(mode="json")
            for run in runs
            for signal in workflows.signals.list(run.id)
        },
        "approvals": {approval.id: approval.model_dump(mode="json") for approval in approvals},
        "schedules": {schedule.name: schedule.model_dump(mode="json") for schedule in workflows.schedules.list()},
        "limits": {limit.key: limit.model_dump(mode="json") for limit in workflows.limits.list()},
        "cron_overrides": {override.name: override.model_dump(mode="json") for override in workflows.cron_overrides.all()},
        "workflow_overrides": {
            override.name: override.model_dump(mode="json") for override in workflows.workflow_overrides.all()
        },
        "chats": {thread.session_id: thread.model_dump(mode="json") for thread in workflows.executions.chat_threads()},
    }


def messaging_seen(tx: Transaction) -> dict[str, Any]:
    """Every record whole, by its id."""
    sessions = tx.messaging.sessions.list(limit=1000).items
    messages = [message for session in sessions for message in tx.messaging.messages.history(session.id, limit=1000)]
    return {
        "messaging_sessions": {session.id: session.model_dump(mode="json") for session in sessions},
        "messaging_messages": {str(message.id): message.model_dump(mode="json") for message in messages},
    }
