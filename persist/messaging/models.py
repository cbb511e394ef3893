"""The tables of messaging as published, with a unique index that also covers sessions without a thread (NULL)."""

from datetime import datetime

from sqlalchemy import ForeignKey, Identity, Index, func, literal_column, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from persist.db.changes.journal import Streams
from persist.db.schema.base import NEVER_REUSED, SCHEMA_TOKEN, Base, flag_default, flag_set, partial_index, predicate, table_of
from persist.db.schema.column_types import Bool, EnumText, FreeText, Int64, IsoMs, Label
from persist.messaging.schemas import MessagingRole


class MessagingSessionRow(Base):
    """A session of one user in one channel or thread. At most one row per key is active."""

    __tablename__ = "messaging_sessions"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    platform: Mapped[str] = mapped_column(Label())
    channel_id: Mapped[str] = mapped_column(Label())
    thread_id: Mapped[str | None] = mapped_column(Label())
    user_id: Mapped[str] = mapped_column(Label())
    agent_session_id: Mapped[str | None] = mapped_column(Label())
    created_at: Mapped[datetime] = mapped_column(IsoMs())
    last_activity_at: Mapped[datetime] = mapped_column(IsoMs())
    message_count: Mapped[int | None] = mapped_column(Int64(), server_default=text("0"))
    active: Mapped[bool | None] = mapped_column(Bool(), server_default=flag_default(True))
    __table_args__ = (Index("idx_msg_sessions_lookup", "platform", "channel_id", "thread_id", "user_id"),)
    messages: Mapped[list["MessagingMessageRow"]] = relationship(
        lambda: MessagingMessageRow, viewonly=True, order_by=lambda: MessagingMessageRow.id
    )


class MessagingMessageRow(Base):
    """One message of a session. Ids are in the order in which messages were added."""

    __tablename__ = "messaging_messages"
    id: Mapped[int] = mapped_column(Int64(), Identity(), primary_key=True)
    session_id: Mapped[str] = mapped_column(Label(), ForeignKey(f"{SCHEMA_TOKEN}.messaging_sessions.id"))
    role: Mapped[MessagingRole] = mapped_column(EnumText(MessagingRole))
    timestamp: Mapped[datetime] = mapped_column(IsoMs())
    platform_message_id: Mapped[str | None] = mapped_column(Label())
    unique_message_id: Mapped[str | None] = mapped_column(Label())
    content: Mapped[str] = mapped_column(FreeText())
    __table_args__ = (Index("idx_msg_messages_session", "session_id", "timestamp"), NEVER_REUSED)
    session: Mapped[MessagingSessionRow] = relationship(lambda: MessagingSessionRow, viewonly=True)


sessions = table_of(MessagingSessionRow)
messages = table_of(MessagingMessageRow)
IS_ACTIVE = flag_set(sessions.c.active)
SAME_THREAD = func.coalesce(sessions.c.thread_id, literal_column("''"))
"""The thread id, '' for NULL: a unique index treats NULLs as distinct and would allow several active rows without a thread."""
partial_index(
    "idx_msg_sessions_one_active",
    sessions.c.platform,
    sessions.c.channel_id,
    SAME_THREAD,
    sessions.c.user_id,
    where=IS_ACTIVE,
    unique=True,
)
DELIVERED_ONCE = predicate("unique_message_id IS NOT NULL")
"""Rows whose platform's id is a key. Earlier releases stored a message as often as it was delivered."""
partial_index(
    "ix_messaging_messages_delivered_once",
    messages.c.session_id,
    messages.c.role,
    messages.c.unique_message_id,
    where=DELIVERED_ONCE,
    unique=True,
)
Index("ix_messaging_sessions_latest", sessions.c.last_activity_at.desc(), sessions.c.id.desc())

Streams("messaging", shared="messaging").over(sessions)
