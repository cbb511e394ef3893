"""The tables of replay streams. Ids of messages are minted, so they grow and cannot be guessed; positions count in a stream."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from persist.db.changes.journal import Streams
from persist.db.operations.upkeep import Aggregate
from persist.db.schema.base import SCHEMA_TOKEN, Base, table_of
from persist.db.schema.column_types import EpochMs, FreeText, Int64, Label


class ReplaySessionRow(Base):
    """The session of one client, and when a message for it was last stored (`updated_at`)."""

    __tablename__ = "replay_sessions"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    updated_at: Mapped[datetime] = mapped_column(EpochMs())
    __table_args__ = (Index("ix_replay_sessions_updated_at_id", "updated_at", "id"),)


class ReplayMessageRow(Base):
    """One message of a stream. `message` is NULL in a marker: a place to go on from, which is never sent again."""

    __tablename__ = "replay_messages"
    session_id: Mapped[str] = mapped_column(Label(), ForeignKey(f"{SCHEMA_TOKEN}.replay_sessions.id"), primary_key=True)
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    stream: Mapped[str] = mapped_column(Label())
    position: Mapped[int] = mapped_column(Int64())
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    message: Mapped[str | None] = mapped_column(FreeText())
    __table_args__ = (Index("ix_replay_messages_session_id_stream_position", "session_id", "stream", "position", unique=True),)


sessions = table_of(ReplaySessionRow)
messages = table_of(ReplayMessageRow)
SESSIONS = Aggregate(sessions)
Streams("replay", shared="replays").over(sessions)
