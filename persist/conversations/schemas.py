"""Values and vocabularies of conversations, with the fields of lionagi's ADR-0009 (docs/designs.md) and aware datetimes."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypedDict
from uuid import UUID

from persist.conversations.embeddings import pack
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import optional_label
from persist.db.values.clock import EPOCH, as_utc, epoch_real
from persist.db.values.frozen import Value
from persist.db.values.json import Json
from persist.errors import InvalidValue, shown

# Messages have the fields of lionagi's `Message.model_dump()`, with or without mode="db" (docs/designs.md: ADR-0009).

_KEYS = frozenset(
    ["id", "created_at", "metadata", "node_metadata", "content", "embedding", "sender", "recipient", "channel", "role"]
)
_DEEPEST = 256  # levels; deeper than any valid value, so the check refuses what is left below them
_LATEST = 253_402_300_799.0  # the last second of the year 9999


def message_fields(work: UnitOfWork, message: object, *, path: str = "message") -> dict[str, Any]:
    """The columns of a message, `lion_class` still as the class path it names ("" for none)."""
    if not isinstance(message, Mapping):
        raise InvalidValue(path, f"expected a dict as model_dump() gives, got {type(message).__name__}.")
    unknown = sorted(key if isinstance(key, str) else shown(key) for key in message if key not in _KEYS)
    if unknown:
        raise InvalidValue(f"{path}.{unknown[0]}", "a message has no such field.")
    if "metadata" in message and "node_metadata" in message:
        raise InvalidValue(f"{path}.node_metadata", "a message says metadata or node_metadata, not both.")
    for required in ("id", "created_at"):
        if message.get(required) is None:
            raise InvalidValue(f"{path}.{required}", "it is required.")
    if message.get("content") is None:
        raise InvalidValue(f"{path}.content", "it is required; empty text, 0, False and empty lists are content, None is not.")
    role = message.get("role")
    if not isinstance(role, str) or not role.strip():
        raise InvalidValue(f"{path}.role", "expected text that is not blank.")
    metadata = node_metadata(work, f"{path}.node_metadata", message.get("node_metadata", message.get("metadata")))
    return {
        "id": work.label(f"{path}.id", _text(message["id"])),
        "created_at": epoch_of(f"{path}.created_at", message["created_at"]),
        "node_metadata": None if metadata is None else work.json(f"{path}.node_metadata", metadata),
        "lion_class": _class_of(f"{path}.node_metadata.lion_class", metadata),
        "content": work.json(f"{path}.content", plain(message["content"])),
        "embedding": pack(f"{path}.embedding", message.get("embedding")),
        "sender": optional_label(f"{path}.sender", _text(message.get("sender"))),
        "recipient": optional_label(f"{path}.recipient", _text(message.get("recipient"))),
        "channel": optional_label(f"{path}.channel", message.get("channel")),
        "role": work.label(f"{path}.role", str(role)),
        "stored_at": work.now(),
    }


def node_metadata(work: UnitOfWork, path: str, value: Json) -> dict[str, Any] | None:
    """Checked metadata: a JSON object or None."""
    if value is None:
        return None
    return work.json_object(path, plain(value))


def epoch_of(path: str, value: object) -> float:
    """Seconds since 1970: a number exactly as given, or the instant of an aware datetime."""
    if isinstance(value, datetime):
        return epoch_real(as_utc(path, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(path, f"expected seconds since 1970 or an aware datetime, got {type(value).__name__}.")
    if not -_FIRST <= value <= _LATEST:  # also true for NaN
        raise InvalidValue(path, "it is no instant between the years 1 and 9999.")
    return float(value) + 0.0  # -0.0 becomes 0.0


_FIRST = (EPOCH - datetime.min.replace(tzinfo=EPOCH.tzinfo)).total_seconds()


def plain(value: Json, levels: int = _DEEPEST) -> Json:
    """The value with UUIDs as text and tuples as lists, as runtimes dump them; other types are left to the check."""
    if isinstance(value, UUID):
        return str(value)
    if levels == 0:
        return value
    if isinstance(value, Mapping):
        return {key: plain(one, levels - 1) for key, one in value.items()}
    if isinstance(value, tuple) or type(value) is list:
        return [plain(one, levels - 1) for one in value]
    return value


def _text(value: object) -> object:
    return str(value) if isinstance(value, UUID) else value


def _class_of(path: str, metadata: Mapping[str, Any] | None) -> str:
    named = None if metadata is None else metadata.get("lion_class")
    if named is None:
        return ""
    if not isinstance(named, str):
        raise InvalidValue(path, "expected the path of a class.")
    return optional_label(path, named, empty=True) or ""


def message_list(messages: object) -> Sequence[Any]:
    """A list of messages. Raises InvalidValue for a single message."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidValue("messages", "expected a list of messages.")
    return messages


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
        """The id of the message that this message copies; None if it is no copy."""
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


class StatusChange(TypedDict, total=False):
    """Whence and why a status changes.

    expected       the statuses to change from; the verb returns False for another one
    reason         a text; reason_code is a word for it, and evidence_refs is JSON that refers to evidence
    source         executor (the default), agent, admin or system; an admin may fail, abort or cancel
    override       why a status changes that has ended, which needs an `actor`
    """

    expected: Iterable[str | None] | None
    reason: str | None
    reason_code: str | None
    evidence_refs: Json
    source: str | None
    actor: str | None
    override: str | None
