"""Values of histories. A message is JSON, as the framework that wrote it serializes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from persist.db.values.frozen import Value
from persist.errors import InvalidValue

_MAX = 2**63 - 1


def whole_number(path: str, value: object, *, minimum: int = -_MAX - 1) -> int:
    """The number. Raises InvalidValue unless it is a whole one from `minimum` on that fits 64 bits."""
    if type(value) is not int or not minimum <= value <= _MAX:
        raise InvalidValue(path, f"expected a whole number from {minimum} on that fits 64 bits.")
    return value


def text(path: str, value: object) -> str:
    """The text, of any content. Raises InvalidValue for anything else."""
    if not isinstance(value, str):
        raise InvalidValue(path, f"expected text, got {type(value).__name__}.")
    return value


def optional_text(path: str, value: object) -> str | None:
    """The text, of any content, or None. Raises InvalidValue for anything else."""
    return None if value is None else text(path, value)


class SnapshotState(StrEnum):
    """Whether the tool calls of a snapshot's messages all had results when it was taken."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"


class EffectStatus(StrEnum):
    """What is known of a tool call. A call that stays `started` was running when its process last wrote."""

    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Message:
    """A message to store. `extra`: what the framework needs besides the JSON to rebuild the message."""

    data: Any
    kind: str = "message"
    extra: Any = None


@dataclass(frozen=True, slots=True)
class NewEntry:
    """A message to append behind the entry `parent_id`; None: it is the first of its history."""

    id: str
    parent_id: str | None
    message: Message


class Entry(Value):
    """A row of history_entries: a message, linked to the one before it."""

    id: str
    parent_id: str | None
    kind: str
    message: Any
    extra: Any
    created_at: datetime


class History(Value):
    """A row of history_records: where a conversation's messages end, and what they cannot say."""

    id: str
    head_id: str | None
    """The newest entry; None: there are no messages."""
    branches: list[str]
    """The last entries of branches that the conversation has left, oldest first."""
    scope: str | None
    forked_from: str | None
    forked_at: str | None
    revision: str
    """A token that every write replaces."""
    format_version: int
    created_at: datetime
    updated_at: datetime
    usage: dict[str, Any]
    deferred: Any
    """Tool calls that the conversation waits for; None: there are none."""


class HistoryRun(Value):
    """A row of history_runs: a run of an agent."""

    id: str
    conversation_id: str | None
    parent_id: str | None
    agent_name: str | None
    registration_id: str | None
    started_at: datetime | None
    """None for a run that took steps and was never registered."""
    created_at: datetime
    updated_at: datetime
    metadata: dict[str, Any]


class RunEvent(Value):
    """A row of history_run_events: something that a run came to. They are never changed."""

    run_id: str
    position: int
    kind: str
    step_index: int
    at: datetime
    conversation_id: str | None
    parent_run_id: str | None
    agent_name: str | None
    tool_call_id: str | None
    tool_name: str | None
    idempotency_key: str | None
    error: str | None
    metadata: dict[str, Any]


class Snapshot(Value):
    """A row of history_snapshots: the messages from which a run can be continued end at `head_id`."""

    run_id: str
    position: int
    state: SnapshotState | str
    step_index: int
    taken_at: datetime
    conversation_id: str | None
    parent_run_id: str | None
    agent_name: str | None
    idempotency_key: str | None
    head_id: str | None


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """A snapshot with its messages, oldest first."""

    snapshot: Snapshot
    entries: Sequence[Entry]


class ToolEffect(Value):
    """A row of history_tool_effects: whether the effect of a tool call on the world is known."""

    run_id: str
    tool_call_id: str
    tool_name: str
    status: EffectStatus | str
    started_at: datetime
    ended_at: datetime | None
    idempotency_key: str | None
    effect_summary: str | None
