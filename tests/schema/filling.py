"""A database with something of everything in it, made through the public API, and what a reader sees of it."""

import json
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from persist import Store
from persist.chat.recording.recorder import Recorder
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.schema.filling_app_sessions import app_sessions_seen
from tests.schema.filling_conversations import (
    blobs_seen,
    conversations_seen,
    events_seen,
    fill_blobs,
    fill_conversations,
    fill_events,
    fill_usage,
    usage_seen,
    with_a_file,
)
from tests.schema.filling_frameworks import (
    agent_tasks_seen,
    checkpoints_seen,
    fill_frameworks,
    histories_seen,
    replay_streams_seen,
    transcripts_seen,
)
from tests.schema.filling_machines import fill_programs, fill_telemetry, programs_seen, telemetry_seen
from tests.schema.filling_workflows import fill_messaging, fill_workflows, messaging_seen, workflows_seen

LONG = Settings(fold_ms=3_600_000, fold_bytes=2**20)
"""With these a recorder's tail stays a tail until it is closed."""

PROMPT = "You are careful.\x00 Naïve text \ud83d stays what it was."

_STEP: list[dict[str, Any]] = [
    {"type": "start", "messageMetadata": {"trace": "abc"}},
    {"type": "start-step"},
    {"type": "reasoning-start", "id": "r1"},
    {"type": "reasoning-delta", "id": "r1", "delta": "Look at the file first. "},
    {"type": "reasoning-end", "id": "r1"},
    {"type": "tool-input-start", "toolCallId": "call-1", "toolName": "read"},
    {"type": "tool-input-delta", "toolCallId": "call-1", "inputTextDelta": '{"path":"src/'},
    {"type": "tool-input-delta", "toolCallId": "call-1", "inputTextDelta": 'main.py"}'},
    {"type": "tool-input-available", "toolCallId": "call-1", "toolName": "read", "input": {"path": "src/main.py"}},
    {"type": "tool-output-available", "toolCallId": "call-1", "output": {"lines": 12, "text": "print('hi')"}},
    {"type": "finish-step"},
]
_ANSWER: list[dict[str, Any]] = [
    {"type": "start-step"},
    {"type": "text-start", "id": "t1"},
    {"type": "text-delta", "id": "t1", "delta": "It prints "},
    {"type": "text-delta", "id": "t1", "delta": "hi."},
    {"type": "text-end", "id": "t1"},
    {"type": "finish-step"},
    {"type": "finish"},
]
_UNFINISHED: list[dict[str, Any]] = [
    {"type": "start"},
    {"type": "start-step"},
    {"type": "text-start", "id": "t1"},
    {"type": "text-delta", "id": "t1", "delta": "This answer "},
    {"type": "text-delta", "id": "t1", "delta": "was never fin"},
]


def fill(store: Store, clock: FrozenClock, stack: ExitStack) -> Recorder:
    """Something of every domain; and a turn that still runs, with its recorder."""
    fill_events(store, clock)
    with store.begin() as tx:
        session = tx.chat.sessions.create(
            agent="build",
            model={"provider_id": "example", "model_id": "large", "weights": [0.5, 1e300, -(2**63), 2**64 - 1]},
            workspace_root="/home/somebody/project",
            metadata={"title": "Reading a file", "note": "\ufdd0 and \x00"},
            permissions=[{"permission": "bash", "pattern": "git *", "action": "allow", "source": "session"}],
            owner="maria",
        )
        question = tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "What does it do?"}])
        tx.chat.prompts.put(PROMPT)
    clock.advance(seconds=1)
    with store.record(session.id, model={"model_id": "large"}, agent="build") as recorder:
        recorder.feed_many(_STEP)
        recorder.step_usage(1, input_tokens=1000, output_tokens=50, reasoning_tokens=20, cache_read_tokens=600, cost_usd=0.25)
        clock.advance(seconds=2)
        recorder.feed_many(_ANSWER)
    with store.begin() as tx:
        tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "And \ud83d this?"}])
        tx.chat.messages.enqueue(session.id, parts=[{"type": "text", "text": "Later."}])
        clock.advance(delta=timedelta(milliseconds=7))
        tx.chat.sessions.fork(session.id, question.id)
        with_a_file(tx, session.id)
        archived = tx.chat.sessions.create(agent="plan", model={"model_id": "small"})
        tx.chat.sessions.archive(archived.id)
    fill_workflows(store, clock)
    fill_conversations(store, clock)
    fill_telemetry(store, clock)
    fill_usage(store, clock)
    fill_programs(store, clock)
    fill_messaging(store, clock)
    fill_frameworks(store)
    fill_blobs(store)
    running = stack.enter_context(store.record(session.id))
    for chunk in _UNFINISHED:
        running.feed(chunk)
    store.chat.sessions.request_stop(session.id)
    return running


def transcript(store: Store) -> dict[str, Any]:
    """What a reader sees, as JSON has it."""
    with store.read() as tx:
        sessions = tx.chat.sessions.list(include_archived=True, limit=100).items
        seen = {
            "sessions": {session.id: session.model_dump(mode="json") for session in sessions},
            "messages": {session.id: tx.chat.messages.list(session.id, include_hidden=True) for session in sessions},
            "queued": {session.id: [message.id for message in tx.chat.messages.queued(session.id)] for session in sessions},
        }
        seen |= workflows_seen(tx) | messaging_seen(tx) | conversations_seen(tx)
        seen |= telemetry_seen(tx) | usage_seen(tx) | programs_seen(tx) | events_seen(tx)
        seen |= checkpoints_seen(tx) | histories_seen(tx) | transcripts_seen(tx)
        seen |= app_sessions_seen(tx) | replay_streams_seen(tx) | agent_tasks_seen(tx) | blobs_seen(tx)
    plain: dict[str, Any] = json.loads(json.dumps(seen))
    return plain
