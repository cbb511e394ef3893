"""Cursors that callers keep: what each list's cursor consists of stays the same from release to release."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from persist.db.values.clock import epoch_ms, epoch_us
from persist.db.values.pages import encode_cursor
from persist.framework_state.checkpoints.schemas import Blob
from tests.contract.chat.scenes import MODEL

# How a list is read, and of its cursor: the list's name, the filters that it is bound to, and the place of the last item.
KEPT: dict[str, tuple[Callable[..., Any], str, dict[str, Any], Callable[[Any], list[Any]]]] = {
    "agent_tasks.tasks.latest": (
        lambda tx, **page: tx.agent_tasks.tasks.latest(**page),
        "agent_tasks.latest",
        {},
        lambda one: [epoch_ms(one.updated_at), one.id],
    ),
    "app_sessions.sessions.list": (
        lambda tx, **page: tx.app_sessions.sessions.list(**page),
        "app_sessions.sessions",
        {},
        lambda one: [epoch_ms(one.updated_at), one.id],
    ),
    "blobs.list": (lambda tx, **page: tx.blobs.list(**page), "blobs", {}, lambda one: [epoch_ms(one.put_at), one.sha256]),
    "chat.sessions.children": (
        lambda tx, **page: tx.chat.sessions.children("ses_parent", **page),
        "chat.children",
        {"row_id": "ses_parent"},
        lambda one: [epoch_us(one.created_at), one.id],
    ),
    "checkpoints.threads.list": (
        lambda tx, **page: tx.checkpoints.threads.list(**page),
        "checkpoints.threads",
        {},
        lambda one: [epoch_ms(one.updated_at), one.id],
    ),
    "histories.records.list": (
        lambda tx, **page: tx.histories.records.list(scope="s", **page),
        "histories.records",
        {"scope": "s"},
        lambda one: [epoch_us(one.updated_at), one.id],
    ),
    "histories.runs.list": (
        lambda tx, **page: tx.histories.runs.list(**page),
        "histories.runs",
        {},
        lambda one: [epoch_ms(one.updated_at), one.id],
    ),
    "histories.runs.started": (
        lambda tx, **page: tx.histories.runs.started(conversation_id="talk", **page),
        "histories.started",
        {"conversation_id": "talk"},
        lambda one: [epoch_us(one.started_at), epoch_us(one.created_at), one.id],
    ),
    "messaging.sessions.list": (
        lambda tx, **page: tx.messaging.sessions.list(platform="slack", active=True, **page),
        "messaging.sessions",
        {"platform": "slack", "active": True},
        lambda one: [epoch_ms(one.last_activity_at), one.id],
    ),
    "programs.runs.list": (
        lambda tx, **page: tx.programs.runs.list(**page),
        "programs.runs",
        {"status": None},
        lambda one: [epoch_ms(one.started_at), one.id],
    ),
    "programs.runs.list of a status": (
        lambda tx, **page: tx.programs.runs.list(status="running", **page),
        "programs.runs",
        {"status": "running"},
        lambda one: [epoch_ms(one.started_at), one.id],
    ),
    "replay_streams.sessions.list": (
        lambda tx, **page: tx.replay_streams.sessions.list(**page),
        "replay_streams.sessions",
        {},
        lambda one: [epoch_ms(one.updated_at), one.id],
    ),
    "telemetry.tasks.list": (
        lambda tx, **page: tx.telemetry.tasks.list(state="queued", workspace_id="w", **page),
        "telemetry.tasks",
        {"owner": "w", "in_state": "queued"},
        lambda one: [epoch_us(one.discovered_at), one.id],
    ),
    "transcripts.sessions.list": (
        lambda tx, **page: tx.transcripts.sessions.list(project="p", **page),
        "transcripts.sessions",
        {"project": "p"},
        lambda one: [epoch_ms(one.updated_at), one.id],
    ),
    "transcripts.sessions.mains": (
        lambda tx, **page: tx.transcripts.sessions.mains("p", **page),
        "transcripts.mains",
        {"of_project": "p"},
        lambda one: [epoch_us(one.main_at), one.id],
    ),
    "usage.budgets.list": (
        lambda tx, **page: tx.usage.budgets.list(**page),
        "usage.budgets",
        {},
        lambda one: [one.key, one.period],
    ),
    "usage.calls.list": (
        lambda tx, **page: tx.usage.calls.list(session_id="s", **page),
        "usage calls",
        {"scope": "session:s"},
        lambda one: [one.seq],
    ),
    "workflows.approvals.pending": (
        lambda tx, **page: tx.workflows.approvals.pending(trigger_id="t", **page),
        "workflows.approvals.pending",
        {"trigger_id": "t"},
        lambda one: [epoch_us(one.created_at), one.id],
    ),
    "workflows.executions.list": (
        lambda tx, **page: tx.workflows.executions.list(skill="fix", **page),
        "workflows.executions",
        {"skill": "fix"},
        lambda one: [epoch_ms(one.started_at), one.id],
    ),
    "workflows.executions.running": (
        lambda tx, **page: tx.workflows.executions.running(**page),
        "workflows.executions.running",
        {},
        lambda one: [epoch_us(one.started_at), one.id],
    ),
    "workflows.limits.list": (lambda tx, **page: tx.workflows.limits.list(**page), "workflows.limits", {}, lambda one: [one.key]),
    "workflows.runs.list_queued": (
        lambda tx, **page: tx.workflows.runs.list_queued(**page),
        "workflows.runs.queued",
        {},
        lambda one: [epoch_us(one.started_at), one.id],
    ),
}


_MORE = timedelta(microseconds=7)


def fill(store: Any, clock: Any) -> None:
    """Two of each."""
    with store.begin() as tx:
        tx.chat.sessions.create(id="ses_parent", agent="build", model=MODEL)
        said = tx.chat.messages.append("ses_parent", role="user", parts=[{"type": "text", "text": "hi"}])
        for name in ("a", "b"):
            tx.agent_tasks.tasks.save("ann", name, state="working", head=b"", pieces=[])
            tx.app_sessions.sessions.create("app", "maria", name)
            tx.blobs.put(name.encode())
            tx.chat.sessions.fork("ses_parent", said.id)
            tx.checkpoints.states.put(name, "1", head=Blob("null", b""))
            tx.histories.records.put(
                name,
                revision="1",
                expected_revision=None,
                head_id=None,
                updated_at=clock() + timedelta(microseconds=7),
                scope="s",
            )
            tx.histories.runs.register(name, started_at=clock(), conversation_id="talk")
            tx.messaging.sessions.get_or_create(platform="slack", channel_id=name, user_id="U1")
            tx.programs.runs.create(id=name)
            tx.replay_streams.messages.append(name, "x", "{}")
            task = {"id": name, "source_id": "s", "kind": "k", "title": "t", "discovered_at": clock()}
            tx.telemetry.tasks.poll([task], workspace_id="w")
            tx.transcripts.entries.append("p", name, [{"type": "x"}])
            tx.usage.budgets.set(f"owner:{name}", max_tokens=1)
            tx.usage.calls.record(model="m", session_id="s")
            tx.workflows.limits.set(name, concurrency=1)
            tx.workflows.runs.create("w", trigger_id="t", current_phase="plan", status="queued", id=f"queued-{name}")
            run = tx.workflows.runs.create("w", trigger_id="t", current_phase="plan", id=name)
            tx.workflows.approvals.request(run.id, gate="g", summary="s")
            tx.workflows.executions.start(skill="fix", trigger_type="api", trigger_id="t")
            clock.advance(seconds=1)


def test_a_cursor_is_made_of_what_it_was_made_of(store: Any, clock: Any) -> None:
    fill(store, clock)
    with store.read() as tx:
        for list_name, (read, name, filters, place) in KEPT.items():
            page = read(tx, limit=1)
            assert page.cursor == encode_cursor(name, filters, place(page.items[0])), list_name
            assert read(tx, limit=1, after=page.cursor).items not in ([], page.items), list_name
