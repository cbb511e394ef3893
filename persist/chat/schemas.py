"""Values and vocabularies of chat. Shapes: the chat persistency document, with JSON columns as Python objects."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from persist.db.values import Value

UIMessage = dict[str, Any]
"""`{"id", "role", "parts"[, "metadata"]}`, as the AI SDK hydrates it."""


class Role(StrEnum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"


class ToolState(StrEnum):
    """The states of a tool part, in the order they are usually passed."""

    INPUT_STREAMING = "input-streaming"
    INPUT_AVAILABLE = "input-available"
    APPROVAL_REQUESTED = "approval-requested"
    APPROVAL_RESPONDED = "approval-responded"
    OUTPUT_AVAILABLE = "output-available"
    OUTPUT_ERROR = "output-error"
    OUTPUT_DENIED = "output-denied"


UNFINISHED = (
    ToolState.INPUT_STREAMING,
    ToolState.INPUT_AVAILABLE,
    ToolState.APPROVAL_REQUESTED,
    ToolState.APPROVAL_RESPONDED,
)
"""The states in which a tool part still waits for its result."""


class SummaryAs(StrEnum):
    """How a view for the model shows a compaction: as text that every converter passes on, or as the part that is stored."""

    TEXT = "text"
    DATA = "data"


class TurnState(StrEnum):
    """What `chat_turns` says of a session's latest turn; no row means idle."""

    RUNNING = "running"
    ERROR = "error"


class ChatSession(Value):
    """A row of chat_sessions. Token counters are sums over the visible messages from the compaction boundary on."""

    id: str
    agent: str
    workspace_root: str | None
    model: Any
    parent_id: str | None
    parent_message_id: str | None
    permissions: list[dict[str, Any]]
    metadata: dict[str, Any]
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cache_read: int
    cache_write: int
    total_tokens: int
    cost_usd: float
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None


class ChatMessage(Value):
    """A row of chat_messages, without its parts (`messages.get` gives those)."""

    id: str
    session_id: str
    role: Role
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class StepUsage(Value):
    """Token counts of one step, as stored: `input` excludes what the cache served or took."""

    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_write: int
    cost_usd: float

    @property
    def total(self) -> int:
        """The sum of the five counters."""
        return self.input + self.output + self.reasoning + self.cache_read + self.cache_write
