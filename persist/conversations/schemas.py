"""Values and vocabularies of conversations, with the fields of lionagi's ADR-0009 (docs/designs.md) and aware datetimes."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from persist.db.values.frozen import Value

CLONE_FROM = "clone_from"
"""The key of node_metadata where the runtime notes the original of a copy: a message's id, or an object with a branch's id."""


class Status(StrEnum):
    """The status of a session or branch; a column may also be None: the status was never set."""

    RUNNING = "running"
    COMPLETED = "completed"
    COMPLETED_EMPTY = "completed_empty"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    ABORTED = "aborted"
    CANCELLED = "cancelled"


class InvocationKind(StrEnum):
    """What started a session."""

    AGENT = "agent"
    PLAY = "play"
    FLOW = "flow"
    FANOUT = "fanout"
    SHOW_PLAY = "show-play"
    ENGINE = "engine"


class SourceKind(StrEnum):
    """Whether a session was recorded as it ran, or imported afterwards."""

    LIVE = "live"
    IMPORTED_FS = "imported_fs"
    IMPORTED_CODEX = "imported_codex"


class TransitionSource(StrEnum):
    """Who changed a status."""

    EXECUTOR = "executor"
    AGENT = "agent"
    ADMIN = "admin"
    SYSTEM = "system"


class Metric(StrEnum):
    """The distance measure between two embeddings."""

    COSINE = "cosine"
    L2 = "l2"


def _clone_of(metadata: Any) -> str | None:
    """The id of the original in the runtime's mark of a copy, which is the id itself or an object with it."""
    said = metadata.get(CLONE_FROM) if isinstance(metadata, dict) else None
    said = said.get("id") if isinstance(said, dict) else said
    return said if isinstance(said, str) else None


class ConvMessage(Value):
    """A row of messages: content that progressions refer to. `created_at_epoch` is the exact float of its instant."""

    id: str
    created_at: datetime
    created_at_epoch: float
    node_metadata: Any
    content: Any
    embedding: list[float] | None
    """The stored float32 numbers as Python floats."""
    sender: str | None
    recipient: str | None
    channel: str | None
    role: str
    lion_class: int
    """The number of its class in message_types; 0 if the message named no class."""
    lion_class_str: str

    @property
    def clone_of(self) -> str | None:
        """The id of the message that this one is a copy of; None if it is no copy."""
        return _clone_of(self.node_metadata)

    def to_dict(self) -> dict[str, Any]:
        """The message as its runtime dumps it with mode="db": what was put, with `metadata` named `node_metadata`."""
        names = ("node_metadata", "content", "embedding", "sender", "recipient", "channel", "role")
        return {"id": self.id, "created_at": self.created_at_epoch, **{name: getattr(self, name) for name in names}}


class ConvSession(Value):
    """A row of sessions: a scope with a pool of messages and branches over it."""

    id: str
    created_at: datetime
    name: str | None
    user: str | None
    progression_id: str
    first_msg_id: str | None
    last_msg_id: str | None
    updated_at: datetime
    last_message_at: datetime | None
    playbook_name: str | None
    agent_name: str | None
    invocation_kind: InvocationKind | None
    show_topic: str | None
    show_play_name: str | None
    artifacts_path: str | None
    source_kind: SourceKind | None
    status: Status | None
    status_reason_code: str | None
    status_reason_summary: str | None
    status_evidence_refs: Any
    started_at: datetime | None
    ended_at: datetime | None
    ended_at_is_approximate: bool
    node_metadata: Any


class Branch(Value):
    """A row of branches: an ordered view of messages, perhaps forked from another branch's."""

    id: str
    created_at: datetime
    name: str | None
    user: str | None
    session_id: str
    progression_id: str
    system_msg_id: str | None
    status: Status | None
    started_at: datetime | None
    ended_at: datetime | None
    parent_branch_id: str | None
    forked_at_ord: int | None
    """How many items of the parent's history the branch inherits."""
    node_metadata: Any

    @property
    def clone_of(self) -> str | None:
        """The id of the branch that the runtime copied message by message to make this one; None if it is no copy."""
        return _clone_of(self.node_metadata)


class Progression(Value):
    """A row of progressions, without its items."""

    id: str
    created_at: datetime
    name: str | None
    node_metadata: Any


class StatusTransition(Value):
    """A row of status_transitions: one change of a session's or branch's status, and why."""

    id: str
    entity_type: str
    entity_id: str
    previous_status: str | None
    status: str
    reason_code: str | None
    reason_summary: str | None
    evidence_refs: Any
    source: str
    actor: str | None
    created_at: datetime
    metadata: Any


class PruneReport(Value):
    """How many rows a prune deleted, or in a dry run would have."""

    sessions: int
    branches: int
    progressions: int
    messages: int


class ImportReport(Value):
    """The result of an import of run folders."""

    imported: int
    skipped: int
    errors: int
