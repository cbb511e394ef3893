"""The tables of chat: sessions, messages and parts as in the published schema, and further ones for streaming.

Blob columns are declared last: SQLite then reads the other columns without walking through the blobs.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, and_, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from persist.blobs.models import blobs
from persist.chat.schemas import STOPPED_AT, UNFINISHED, Role, TurnState
from persist.db.changes.journal import Streams, deltas_of
from persist.db.schema import base
from persist.db.schema.column_types import LONG_LABEL_BYTES, EnumText, EpochMs, Float64, FreeText, Int64, Json, Label

_ZERO = text("0")


def _ref(column: str) -> ForeignKey:
    return ForeignKey(f"{base.SCHEMA_TOKEN}.{column}", ondelete="CASCADE")


class ChatSessionRow(base.Base):
    """One session, with sums of its token usage for lists."""

    __tablename__ = "chat_sessions"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    agent: Mapped[str] = mapped_column(Label())
    workspace_root: Mapped[str | None] = mapped_column(Label(LONG_LABEL_BYTES))
    parent_id: Mapped[str | None] = mapped_column(Label())
    parent_message_id: Mapped[str | None] = mapped_column(Label())
    prompt_tokens: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    completion_tokens: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    reasoning_tokens: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    cache_read: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    cache_write: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    total_tokens: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    cost_usd: Mapped[float] = mapped_column(Float64(), server_default=_ZERO)
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    updated_at: Mapped[datetime] = mapped_column(EpochMs())
    archived_at: Mapped[datetime | None] = mapped_column(EpochMs())
    owner: Mapped[str | None] = mapped_column(Label())
    model_json: Mapped[Any] = mapped_column(Json(dict, required=True))
    permissions_json: Mapped[Any] = mapped_column(Json(list, dict, required=True), server_default="[]")
    metadata_json: Mapped[Any] = mapped_column(Json(dict, required=True), server_default="{}")
    __table_args__ = (
        Index("ix_chat_sessions_agent_updated_at", "agent", "updated_at"),
        Index("ix_chat_sessions_updated_at_id", "updated_at", "id"),
    )
    messages: Mapped[list["ChatMessageRow"]] = relationship(
        lambda: ChatMessageRow, viewonly=True, order_by=lambda: (ChatMessageRow.created_at, ChatMessageRow.id)
    )
    turn: Mapped["ChatTurnRow | None"] = relationship(lambda: ChatTurnRow, viewonly=True)


class ChatMessageRow(base.Base):
    """A message. Its metadata say if it is queued (`queued_at`) or hidden (`hidden_at`); `claimed_by` took it off the queue."""

    __tablename__ = "chat_messages"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    session_id: Mapped[str] = mapped_column(Label(), _ref("chat_sessions.id"))
    role: Mapped[Role] = mapped_column(EnumText(Role))
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    updated_at: Mapped[datetime] = mapped_column(EpochMs())
    claimed_by: Mapped[str | None] = mapped_column(Label())
    claimed_at: Mapped[datetime | None] = mapped_column(EpochMs())
    metadata_json: Mapped[Any] = mapped_column(Json(dict, required=True), server_default="{}")
    __table_args__ = (
        CheckConstraint("role IN ('user', 'assistant', 'system')", name="role"),
        Index("ix_chat_messages_session_id_created_at", "session_id", "created_at"),
    )
    session: Mapped[ChatSessionRow] = relationship(lambda: ChatSessionRow, viewonly=True)
    parts: Mapped[list["ChatPartRow"]] = relationship(
        lambda: ChatPartRow, viewonly=True, order_by=lambda: (ChatPartRow.index, ChatPartRow.id)
    )
    step_usage: Mapped[list["ChatStepUsageRow"]] = relationship(
        lambda: ChatStepUsageRow, viewonly=True, order_by=lambda: ChatStepUsageRow.step
    )


class ChatPartRow(base.Base):
    """One part of a message: the AI SDK's part unchanged, with its text as of the last fold."""

    __tablename__ = "chat_parts"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    message_id: Mapped[str] = mapped_column(Label(), _ref("chat_messages.id"))
    session_id: Mapped[str] = mapped_column(Label())
    index: Mapped[int] = mapped_column("index", Int64())
    type: Mapped[str] = mapped_column(Label())
    tool_call_id: Mapped[str | None] = mapped_column(Label())
    tool_state: Mapped[str | None] = mapped_column(Label())
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    updated_at: Mapped[datetime] = mapped_column(EpochMs())
    data_json: Mapped[Any] = mapped_column(Json(dict, required=True))
    __table_args__ = (
        Index("ix_chat_parts_message_id_index", "message_id", "index", unique=True),
        Index("ix_chat_parts_session_id", "session_id"),
        Index("ix_chat_parts_tool_call_id", "tool_call_id"),
    )
    message: Mapped[ChatMessageRow] = relationship(lambda: ChatMessageRow, viewonly=True)


class ChatPartDeltaRow(base.Base):
    """A delta: text of a streaming part that is not folded into the part's row yet."""

    __tablename__ = "chat_part_deltas"
    part_id: Mapped[str] = mapped_column(Label(), _ref("chat_parts.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(Int64(), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    delta: Mapped[str] = mapped_column(FreeText())

    # WITHOUT ROWID, one B-tree instead of two: a chunk writes one page to the write-ahead log
    __table_args__ = (base.ONE_TREE,)


class ChatPartBlobRow(base.Base):
    """The blob that holds the bytes of a part's file. Without this row, what looks like a reference in a part is its own text."""

    __tablename__ = "chat_part_blobs"
    part_id: Mapped[str] = mapped_column(Label(), _ref("chat_parts.id"), primary_key=True)
    sha256: Mapped[str] = mapped_column(Label(), ForeignKey(blobs.c.sha256))
    __table_args__ = (Index("ix_chat_part_blobs_sha256", "sha256"),)


class ChatTurnRow(base.Base):
    """The running or failed turn of a session and its owner. `message_id` may name a message not stored yet: no foreign key."""

    __tablename__ = "chat_turns"
    session_id: Mapped[str] = mapped_column(Label(), _ref("chat_sessions.id"), primary_key=True)
    message_id: Mapped[str | None] = mapped_column(Label())
    state: Mapped[TurnState] = mapped_column(EnumText(TurnState))
    owner: Mapped[str] = mapped_column(Label())
    started_at: Mapped[datetime] = mapped_column(EpochMs())
    seen_at: Mapped[datetime] = mapped_column(EpochMs())
    stop_requested_at: Mapped[datetime | None] = mapped_column(EpochMs())
    __table_args__ = (CheckConstraint("state IN ('running', 'error')", name="state"), base.ONE_TREE)


class ChatStepUsageRow(base.Base):
    """Token usage of one step of a message. The row makes recording idempotent: a step is counted once."""

    __tablename__ = "chat_step_usage"
    message_id: Mapped[str] = mapped_column(Label(), _ref("chat_messages.id"), primary_key=True)
    step: Mapped[int] = mapped_column(Int64(), primary_key=True)
    input: Mapped[int] = mapped_column(Int64())
    output: Mapped[int] = mapped_column(Int64())
    reasoning: Mapped[int] = mapped_column(Int64())
    cache_read: Mapped[int] = mapped_column(Int64())
    cache_write: Mapped[int] = mapped_column(Int64())
    cost_usd: Mapped[float] = mapped_column(Float64())
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    __table_args__ = (base.ONE_TREE,)


class SystemPromptRow(base.Base):
    """A system prompt, stored once under the sha256 of its text."""

    __tablename__ = "system_prompts"
    digest: Mapped[str] = mapped_column(Label(), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    body: Mapped[str] = mapped_column(FreeText())


sessions = base.table_of(ChatSessionRow)
messages = base.table_of(ChatMessageRow)
parts = base.table_of(ChatPartRow)
deltas = base.table_of(ChatPartDeltaRow)
part_blobs = base.table_of(ChatPartBlobRow)
turns = base.table_of(ChatTurnRow)
step_usage = base.table_of(ChatStepUsageRow)
prompts = base.table_of(SystemPromptRow)

# Literal values, not parameters: a partial index is used only if the query's condition has the same text as the index's.
QUEUED = base.json_key_set(messages.c.metadata_json, "queued_at")
QUEUED_AT = base.json_number(messages.c.metadata_json, "queued_at")
HIDDEN = base.json_key_set(messages.c.metadata_json, "hidden_at")
TRIGGERED = base.json_key_set(messages.c.metadata_json, "trigger")
DELIVERY = base.json_label(messages.c.metadata_json, "trigger", "delivery_id")
STOPPED = base.json_key_set(messages.c.metadata_json, STOPPED_AT)
VISIBLE = and_(~QUEUED, ~HIDDEN)
IS_COMPACTION = base.predicate("type = 'data-compaction'")
IS_UNFINISHED = base.predicate(f"tool_state IN ({', '.join(repr(str(state)) for state in UNFINISHED)})")
TITLE = base.json_label(sessions.c.metadata_json, "title")
OWNED = sessions.c.owner.is_not(None)
ARCHIVED = sessions.c.archived_at.is_not(None)
STOP_REQUESTED = turns.c.stop_requested_at.is_not(None)

# On Postgres most sessions are in none of these: they have no such value.
for _column, *_order in ([sessions.c.workspace_root, sessions.c.updated_at], [sessions.c.parent_id], [sessions.c.archived_at]):
    _name = f"ix_chat_sessions_{'_'.join(column.name for column in (_column, *_order))}"
    base.file_index(_name, _column, *_order)
    base.server_index(f"{_name}_if_any", _column, *_order, where=_column.is_not(None))

base.set_for(sessions, fill_percent=80)  # what a session's counters change is then written beside the old version

base.containment_index("ix_chat_sessions_metadata", sessions.c.metadata_json)
base.partial_index("ix_chat_sessions_owner", sessions.c.owner, sessions.c.updated_at, sessions.c.id, where=OWNED)
base.partial_index("ix_chat_sessions_archived", sessions.c.updated_at, sessions.c.id, where=ARCHIVED)
base.partial_index("ix_chat_turns_stop_requested", turns.c.session_id, where=STOP_REQUESTED)
base.partial_index("ix_chat_messages_in_line", messages.c.session_id, QUEUED_AT, messages.c.id, where=QUEUED)
base.partial_index("ix_chat_messages_delivery", messages.c.session_id, DELIVERY, where=TRIGGERED)
# The type, which is the same in all of it, has SQLite prefer this index to the one of all parts of a session.
base.partial_index("ix_chat_parts_compaction_of_session", parts.c.session_id, parts.c.type, where=IS_COMPACTION)
base.partial_index("ix_chat_parts_unfinished", parts.c.session_id, parts.c.tool_call_id, where=IS_UNFINISHED)

part_blobs.info["unlogged"] = True  # as the blobs that it names
STREAMS = Streams("", shared="chat")
STREAMS.by("id", sessions)
STREAMS.by("session_id", messages, parts, turns)
STREAMS.through("part_id", deltas)
STREAMS.through("message_id", step_usage)
STREAMS.always_shared(prompts)
deltas_of(deltas, "part_id", "data_json")
