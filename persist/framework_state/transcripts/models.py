"""The tables of transcripts. Entries are kept as JSON text, which comes back as it was given: order of keys, NaN, any integer."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from persist.db.changes.journal import Streams
from persist.db.schema.base import SCHEMA_TOKEN, Base, partial_index, table_of
from persist.db.schema.column_types import EpochMs, FreeText, Int64, Label


class TranscriptRow(Base):
    """The transcript of one session of a project. `length`: how many entries were ever appended, so the next position."""

    __tablename__ = "transcript_sessions"
    id: Mapped[str] = mapped_column(Label(), primary_key=True)
    project: Mapped[str] = mapped_column(Label())
    session_id: Mapped[str] = mapped_column(Label())
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    updated_at: Mapped[datetime] = mapped_column(EpochMs())
    main_at: Mapped[datetime | None] = mapped_column(EpochMs())
    length: Mapped[int] = mapped_column(Int64())
    summary: Mapped[str | None] = mapped_column(FreeText())
    __table_args__ = (
        Index("ix_transcript_sessions_project_session_id", "project", "session_id", unique=True),
        Index("ix_transcript_sessions_session_id", "session_id"),
        Index("ix_transcript_sessions_updated_at_id", "updated_at", "id"),
    )


class TranscriptEntryRow(Base):
    """One entry. `subpath` is empty in the main part of a transcript; positions count through all of its parts.

    `uuid` tells an entry that is appended again: its own, or a digest of it and the content where an earlier entry has that uuid.
    """

    __tablename__ = "transcript_entries"
    transcript_id: Mapped[str] = mapped_column(Label(), ForeignKey(f"{SCHEMA_TOKEN}.transcript_sessions.id"), primary_key=True)
    subpath: Mapped[str] = mapped_column(Label(), primary_key=True)
    position: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    uuid: Mapped[str | None] = mapped_column(Label())
    entry: Mapped[str] = mapped_column(FreeText())


transcripts = table_of(TranscriptRow)
entries = table_of(TranscriptEntryRow)
partial_index(
    "ix_transcript_entries_uuid",
    entries.c.transcript_id,
    entries.c.subpath,
    entries.c.uuid,
    where=entries.c.uuid.is_not(None),
    unique=True,
)

Streams("transcript", shared="transcripts").over(transcripts)
