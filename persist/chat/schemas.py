"""Values and vocabularies of chat, with the fields of the chat persistency design (docs/designs.md), JSON columns decoded."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from persist.db.values.frozen import Value

UIMessage = dict[str, Any]
"""`{"id", "role", "parts"[, "metadata"]}`, as the AI SDK hydrates it."""


class Role(StrEnum):
    """The author of a message."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"


class ToolState(StrEnum):
    """The states of a tool part, in their usual order."""

    INPUT_STREAMING = "input-streaming"
    INPUT_AVAILABLE = "input-available"
    APPROVAL_REQUESTED = "approval-requested"
    APPROVAL_RESPONDED = "approval-responded"
    OUTPUT_AVAILABLE = "output-available"
    OUTPUT_ERROR = "output-error"
    OUTPUT_DENIED = "output-denied"


STOPPED_AT = "stopped_at"
"""The key of a message's metadata with the instant, in milliseconds, at which `abort` stopped its answer."""
UNFINISHED = (ToolState.INPUT_STREAMING, ToolState.INPUT_AVAILABLE, ToolState.APPROVAL_REQUESTED, ToolState.APPROVAL_RESPONDED)
"""The states in which a tool part still waits for its result."""


class SummaryAs(StrEnum):
    """How `model_view` shows a compaction: as a text part, which every converter passes on, or as the stored data part."""

    TEXT = "text"
    DATA = "data"


class Files(StrEnum):
    """How large files of parts are read: as the data URL that was given, or as `persist-blob:<sha256>`, which loads no bytes."""

    DATA = "data"
    REFERENCE = "reference"


class TurnState(StrEnum):
    """The state of a session's turn in `chat_turns`; no row means idle."""

    RUNNING = "running"
    ERROR = "error"


class ChatSession(Value):
    """A row of chat_sessions. Token counters sum the visible assistant messages since the latest compaction; cost is in USD."""

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
    owner: str | None
    """Who the session belongs to, as the host names people: a user's id, for example."""


class ChatTurn(Value):
    """The running turn of a session. `message_id` is None until the stream names its message or its first part arrives."""

    session_id: str
    message_id: str | None
    started_at: datetime
    stop_requested: bool
    """Whether somebody asked the turn to stop, by `sessions.request_stop`."""


class ChatMessage(Value):
    """A row of chat_messages, without its parts; `messages.get` returns a message with parts."""

    id: str
    session_id: str
    role: Role
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class StepUsage(Value):
    """Token counts of one step, as stored. `input` excludes tokens read from or written to the cache."""

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


class SyncedMessages(Value):
    """What `messages.sync` did with the messages that a browser posted, and how its answer goes on."""

    changed: bool
    """Whether anything was written."""
    added: list[str]
    """Ids of new messages of the user's."""
    edited: list[str]
    """Ids of messages of the user's that have another content now."""
    hidden: list[str]
    """Ids of messages that were taken back, by an edit or to be answered again."""
    approvals: list[str]
    """Ids of approvals that were answered."""
    tool_outputs: list[str]
    """Ids of tool calls whose result the browser gave."""
    continues: str | None
    """The assistant's message in which the answer goes on: record its `start` with this id. None for a new message."""
    answered_by: str | None
    """The message that answers the list's last message already, if the browser asked again without a change."""
    running: bool
    """Whether a turn runs in the session: follow it, and record nothing."""
