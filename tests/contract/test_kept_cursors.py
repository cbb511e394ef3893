"""Cursors that callers keep: what each list's cursor consists of stays the same from release to release."""

from collections.abc import Callable
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

import pytest

from persist.db.values.clock import epoch_ms, epoch_us
from persist.db.values.pages import encode_cursor
from persist.errors import InvalidValue
from persist.framework_state.checkpoints.schemas import Blob
from tests.contract.chat.scenes import MODEL

TALK, OF_TRIGGER = {"conversation_id": "talk"}, {"trigger_id": "t"}
SLACK, QUEUED = {"platform": "slack", "active": True}, {"state": "queued", "workspace_id": "w"}
Instant = Callable[[datetime], int]
# A list and what it is given; of its cursor: the list's name, the filters that it is bound to, and the place of the last item.
KEPT: list[tuple[str, dict[str, Any], str, dict[str, Any], str, Instant]] = [
    ("agent_tasks.tasks.latest", {}, "agent_tasks.latest", {}, "updated_at id", epoch_ms),
    ("app_sessions.sessions.list", {}, "app_sessions.sessions", {}, "updated_at id", epoch_ms),
    ("blobs.list", {}, "blobs", {}, "put_at sha256", epoch_ms),
    ("chat.sessions.children", {"id": "ses_parent"}, "chat.children", {"row_id": "ses_parent"}, "created_at id", epoch_us),
    ("checkpoints.threads.list", {}, "checkpoints.threads", {}, "updated_at id", epoch_ms),
    ("histories.records.list", {"scope": "s"}, "histories.records", {"scope": "s"}, "updated_at id", epoch_us),
    ("histories.runs.list", {}, "histories.runs", {}, "updated_at id", epoch_ms),
    ("histories.runs.started", TALK, "histories.started", TALK, "started_at created_at id", epoch_us),
    ("messaging.sessions.list", SLACK, "messaging.sessions", SLACK, "last_activity_at id", epoch_ms),
    ("programs.runs.list", {}, "programs.runs", {"status": None}, "started_at id", epoch_ms),
    ("programs.runs.list", {"status": "running"}, "programs.runs", {"status": "running"}, "started_at id", epoch_ms),
    ("replay_streams.sessions.list", {}, "replay_streams.sessions", {}, "updated_at id", epoch_ms),
    ("telemetry.tasks.list", QUEUED, "telemetry.tasks", {"owner": "w", "in_state": "queued"}, "discovered_at id", epoch_us),
    ("transcripts.sessions.list", {"project": "p"}, "transcripts.sessions", {"project": "p"}, "updated_at id", epoch_ms),
    ("transcripts.sessions.mains", {"project": "p"}, "transcripts.mains", {"of_project": "p"}, "main_at id", epoch_us),
    ("usage.budgets.list", {}, "usage.budgets", {}, "key period", epoch_ms),
    ("usage.calls.list", {"session_id": "s"}, "usage calls", {"scope": "session:s"}, "seq", epoch_ms),
    ("workflows.approvals.pending", OF_TRIGGER, "workflows.approvals.pending", OF_TRIGGER, "created_at id", epoch_us),
    ("workflows.executions.list", {"skill": "fix"}, "workflows.executions", {"skill": "fix"}, "started_at id", epoch_ms),
    ("workflows.executions.running", {}, "workflows.executions.running", {}, "started_at id", epoch_us),
    ("workflows.limits.list", {}, "workflows.limits", {}, "key", epoch_ms),
    ("workflows.runs.list_queued", {}, "workflows.runs.queued", {}, "started_at id", epoch_us),
]


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
        for verb, given, name, filters, place, number in KEPT:
            read = attrgetter(verb)(tx)
            page = read(**given, limit=1)
            found = [getattr(page.items[0], field) for field in place.split()]
            key = [number(value) if isinstance(value, datetime) else value for value in found]
            assert page.cursor == encode_cursor(name, filters, key), verb
            assert read(**given, limit=1, after=page.cursor).items not in ([], page.items), verb
            longer = [value if isinstance(value, int) else "x" * 601 for value in key]
            if longer != key:
                with pytest.raises(InvalidValue, match="after: this is not a cursor"):
                    read(**given, limit=1, after=encode_cursor(name, filters, longer))
