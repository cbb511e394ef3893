"""The tables of lionagi's ADR-0009 (docs/designs.md), and more. Members are what counts; `collection` is folded from them."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, LargeBinary, UniqueConstraint, and_, text
from sqlalchemy.orm import Mapped, foreign, mapped_column, relationship

from persist.conversations.schemas import InvocationKind, SourceKind, Status
from persist.db.changes.journal import Streams
from persist.db.schema.base import ONE_TREE, SCHEMA_TOKEN, Base, flag_default, table_of
from persist.db.schema.column_types import Bool, EnumText, EpochReal, Float64, FreeText, Int64, Json, Label

_ZERO = text("0")
UNKNOWN_TYPE = 0
KNOWN_TYPES = {
    UNKNOWN_TYPE: "__unknown__",
    1: "lionagi.protocols.messages.system.System",
    2: "lionagi.protocols.messages.instruction.Instruction",
    3: "lionagi.protocols.messages.assistant_response.AssistantResponse",
    4: "lionagi.protocols.messages.action_request.ActionRequest",
    5: "lionagi.protocols.messages.action_response.ActionResponse",
}


def _ref(column: str, *, cascade: bool = False) -> ForeignKey:
    return ForeignKey(f"{SCHEMA_TOKEN}.{column}", ondelete="CASCADE" if cascade else None)


def _one_of(column: str, words: type[StrEnum]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(str(word)) for word in words)})", name=column)


class MessageTypeRow(Base):
    """The class path of a kind of message, by number; a new class gets the next number."""

    __tablename__ = "message_types"
    type_id: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    lion_class: Mapped[str] = mapped_column(Label())
    __table_args__ = (UniqueConstraint("lion_class"),)


class MessageRow(Base):
    """One message, owned by nobody: progressions refer to it."""

    __tablename__ = "messages"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    created_at: Mapped[float] = mapped_column(Float64())
    sender: Mapped[str | None] = mapped_column(Label())
    recipient: Mapped[str | None] = mapped_column(Label())
    channel: Mapped[str | None] = mapped_column(Label())
    role: Mapped[str] = mapped_column(Label())
    lion_class: Mapped[int] = mapped_column(Int64(), _ref("message_types.type_id"), server_default=_ZERO)
    stored_at: Mapped[datetime | None] = mapped_column(EpochReal())
    """When the message was first stored (store clock): `prune` spares recent messages that no progression names yet."""
    node_metadata: Mapped[Any | None] = mapped_column(Json(dict))
    embedding: Mapped[bytes | None] = mapped_column(LargeBinary())
    content: Mapped[Any] = mapped_column(Json())
    __table_args__ = (Index("ix_messages_sender", "sender"), Index("ix_messages_recipient", "recipient"))


class ProgressionRow(Base):
    """An ordered list of message ids."""

    __tablename__ = "progressions"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(EpochReal())
    folded: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    """How many members, counted from the first, `collection` contains."""
    name: Mapped[str | None] = mapped_column(FreeText())
    node_metadata: Mapped[Any | None] = mapped_column(Json(dict))
    collection: Mapped[Any] = mapped_column(Json(), server_default="[]")


class ProgressionMemberRow(Base):
    """One place in a progression: places count from 0 without gaps. The message may be gone, or not there yet."""

    __tablename__ = "progression_members"
    progression_id: Mapped[str] = mapped_column(Label(), _ref("progressions.id", cascade=True), primary_key=True)
    ord: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    message_id: Mapped[str] = mapped_column(Label())
    __table_args__ = (Index("ix_progression_members_message_id", "message_id", "progression_id"), ONE_TREE)


class SessionRow(Base):
    """One session, with its provenance and its status."""

    __tablename__ = "sessions"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(EpochReal())
    name: Mapped[str | None] = mapped_column(FreeText())
    user: Mapped[str | None] = mapped_column(Label())
    progression_id: Mapped[str] = mapped_column(Label(), _ref("progressions.id"))
    first_msg_id: Mapped[str | None] = mapped_column(Label(), _ref("messages.id"))
    last_msg_id: Mapped[str | None] = mapped_column(Label(), _ref("messages.id"))
    updated_at: Mapped[datetime] = mapped_column(EpochReal())
    last_message_at: Mapped[datetime | None] = mapped_column(EpochReal())
    playbook_name: Mapped[str | None] = mapped_column(Label())
    agent_name: Mapped[str | None] = mapped_column(Label())
    invocation_kind: Mapped[InvocationKind | None] = mapped_column(EnumText(InvocationKind))
    show_topic: Mapped[str | None] = mapped_column(Label())
    show_play_name: Mapped[str | None] = mapped_column(Label())
    artifacts_path: Mapped[str | None] = mapped_column(Label())
    source_kind: Mapped[SourceKind | None] = mapped_column(EnumText(SourceKind))
    status: Mapped[Status | None] = mapped_column(EnumText(Status))
    status_reason_code: Mapped[str | None] = mapped_column(Label())
    started_at: Mapped[datetime | None] = mapped_column(EpochReal())
    ended_at: Mapped[datetime | None] = mapped_column(EpochReal())
    ended_at_is_approximate: Mapped[bool] = mapped_column(Bool(), server_default=flag_default(False))
    status_reason_summary: Mapped[str | None] = mapped_column(FreeText())
    status_evidence_refs: Mapped[Any | None] = mapped_column(Json())
    node_metadata: Mapped[Any | None] = mapped_column(Json(dict))
    __table_args__ = (
        _one_of("invocation_kind", InvocationKind),
        _one_of("source_kind", SourceKind),
        Index("ix_sessions_progression_id", "progression_id"),
        Index("ix_sessions_first_msg_id", "first_msg_id"),
        Index("ix_sessions_last_msg_id", "last_msg_id"),
        Index("ix_sessions_updated_at_id", "updated_at", "id"),
        Index("ix_sessions_status_updated_at_id", "status", "updated_at", "id"),
        Index("ix_sessions_agent_name_updated_at_id", "agent_name", "updated_at", "id"),
        Index("ix_sessions_playbook_name_updated_at_id", "playbook_name", "updated_at", "id"),
        Index("ix_sessions_invocation_kind_updated_at_id", "invocation_kind", "updated_at", "id"),
        Index("ix_sessions_source_kind_updated_at_id", "source_kind", "updated_at", "id"),
        Index("ix_sessions_show_topic_updated_at_id", "show_topic", "updated_at", "id"),
    )
    branches: Mapped[list["BranchRow"]] = relationship(
        lambda: BranchRow,
        viewonly=True,
        primaryjoin=lambda: and_(SessionRow.id == foreign(BranchRow.session_id), BranchRow.former_of.is_(None)),
        order_by=lambda: (BranchRow.created_at, BranchRow.id),
    )


class BranchRow(Base):
    """One branch: a progression with an agent's configuration."""

    __tablename__ = "branches"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(EpochReal())
    name: Mapped[str | None] = mapped_column(FreeText())
    user: Mapped[str | None] = mapped_column(Label())
    session_id: Mapped[str] = mapped_column(Label(), _ref("sessions.id", cascade=True))
    progression_id: Mapped[str] = mapped_column(Label(), _ref("progressions.id"))
    system_msg_id: Mapped[str | None] = mapped_column(Label(), _ref("messages.id"))
    status: Mapped[Status | None] = mapped_column(EnumText(Status))
    started_at: Mapped[datetime | None] = mapped_column(EpochReal())
    ended_at: Mapped[datetime | None] = mapped_column(EpochReal())
    parent_branch_id: Mapped[str | None] = mapped_column(Label())
    forked_at_ord: Mapped[int | None] = mapped_column(Int64())
    node_metadata: Mapped[Any | None] = mapped_column(Json(dict))
    former_of: Mapped[str | None] = mapped_column(Label())
    """Set on a hidden row that preserves the history of the branch with this id, for the forks that inherit it."""
    __table_args__ = (
        Index("ix_branches_session_id_created_at_id", "session_id", "created_at", "id"),
        Index("ix_branches_progression_id", "progression_id"),
        Index("ix_branches_system_msg_id", "system_msg_id"),
        Index("ix_branches_parent_branch_id", "parent_branch_id"),
    )
    session: Mapped[SessionRow] = relationship(lambda: SessionRow, viewonly=True)


class StatusTransitionRow(Base):
    """One change of a status, written with the change itself."""

    __tablename__ = "status_transitions"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    entity_type: Mapped[str] = mapped_column(Label())
    entity_id: Mapped[str] = mapped_column(Label())
    previous_status: Mapped[str | None] = mapped_column(Label())
    status: Mapped[str] = mapped_column(Label())
    reason_code: Mapped[str | None] = mapped_column(Label())
    source: Mapped[str] = mapped_column(Label())
    actor: Mapped[str | None] = mapped_column(Label())
    created_at: Mapped[datetime] = mapped_column(EpochReal())
    reason_summary: Mapped[str | None] = mapped_column(FreeText())
    evidence_refs: Mapped[Any | None] = mapped_column(Json())
    metadata_: Mapped[Any | None] = mapped_column("metadata", Json())
    __table_args__ = (
        Index("ix_status_transitions_entity_type_entity_id_created_at_id", "entity_type", "entity_id", "created_at", "id"),
    )


class ExchangeItemRow(Base):
    """One message that was sent to an owner, or to all (`recipient` NULL), in the order in which commits made it visible."""

    __tablename__ = "exchange_items"
    seq: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    message_id: Mapped[str] = mapped_column(Label(), _ref("messages.id", cascade=True))
    sender: Mapped[str] = mapped_column(Label())
    recipient: Mapped[str | None] = mapped_column(Label())
    channel: Mapped[str | None] = mapped_column(Label())
    sent_at: Mapped[datetime | None] = mapped_column(EpochReal())
    """When it was sent (store clock). NULL on rows older than this column: see the message's `stored_at` or `created_at`."""
    __table_args__ = (
        UniqueConstraint("message_id"),
        Index("ix_exchange_items_recipient_seq", "recipient", "seq"),
        Index("ix_exchange_items_sender_seq", "sender", "seq"),
    )


class ExchangeCursorRow(Base):
    """How far an owner has read a channel ('' for messages without one). The row with owner '' holds the last seq given."""

    __tablename__ = "exchange_cursors"
    owner: Mapped[str] = mapped_column(Label(), primary_key=True)
    channel: Mapped[str] = mapped_column(Label(), primary_key=True)
    seq: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)


message_types = table_of(MessageTypeRow)
messages = table_of(MessageRow)
progressions = table_of(ProgressionRow)
members = table_of(ProgressionMemberRow)
sessions = table_of(SessionRow)
branches = table_of(BranchRow)
transitions = table_of(StatusTransitionRow)
exchange_items = table_of(ExchangeItemRow)
exchange_cursors = table_of(ExchangeCursorRow)
message_types.info["seed"] = [{"type_id": number, "lion_class": path} for number, path in KNOWN_TYPES.items()]
exchange_cursors.info["seed"] = [{"owner": "", "channel": "", "seq": 0}]

# Messages and progressions are shared between sessions: the verb that writes them for a session names the session's stream.
STREAMS = Streams("conversation", shared="conversations")
STREAMS.over(sessions)
STREAMS.always_shared(message_types)
STREAMS.unowned(messages, progressions, members, transitions, exchange_items, exchange_cursors)
