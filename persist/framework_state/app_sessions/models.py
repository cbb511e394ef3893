"""The tables of application sessions. An application, its users and their sessions are named by the runner."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, LargeBinary, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from persist.blobs.models import blobs
from persist.db.changes.journal import Streams
from persist.db.schema.base import SCHEMA_TOKEN, Base, table_of
from persist.db.schema.column_types import EpochMs, Float64, FreeText, Int64, Label


def _key() -> Mapped[str]:
    return mapped_column(Label(), primary_key=True)


def _of_session() -> Mapped[str]:
    return mapped_column(Label(), ForeignKey(f"{SCHEMA_TOKEN}.app_user_sessions.id"), primary_key=True)


class AppSessionRow(Base):
    """A session of a user. `revision` counts its events; `update_time` is the newest one's, in seconds since 1970."""

    __tablename__ = "app_user_sessions"
    id: Mapped[str] = _key()
    app_name: Mapped[str] = mapped_column(Label())
    user_id: Mapped[str] = mapped_column(Label())
    session_id: Mapped[str] = mapped_column(Label())
    revision: Mapped[int] = mapped_column(Int64())
    update_time: Mapped[float] = mapped_column(Float64())
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    updated_at: Mapped[datetime] = mapped_column(EpochMs())
    __table_args__ = (
        UniqueConstraint("app_name", "user_id", "session_id"),
        Index("ix_app_user_sessions_updated_at_id", "updated_at", "id"),
    )


class AppSessionEventRow(Base):
    """An event of a session, as JSON text in `data`."""

    __tablename__ = "app_session_events"
    app_session_id: Mapped[str] = _of_session()
    position: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    id: Mapped[str] = mapped_column(Label())
    timestamp: Mapped[float] = mapped_column(Float64())
    author: Mapped[str] = mapped_column(FreeText())
    invocation_id: Mapped[str] = mapped_column(FreeText())
    data: Mapped[str] = mapped_column(FreeText())
    __table_args__ = (
        Index("ix_app_session_events_timestamp", "app_session_id", "timestamp", "position"),
        Index("ix_app_session_events_id", "app_session_id", "id"),
    )


class AppSessionStateRow(Base):
    """One entry of a session's own state, as JSON text. `position` orders entries by when they were added."""

    __tablename__ = "app_session_state"
    app_session_id: Mapped[str] = _of_session()
    key: Mapped[str] = _key()
    position: Mapped[int] = mapped_column(Int64())
    value: Mapped[str] = mapped_column(FreeText())


class AppStateRow(Base):
    """An entry of the state that an application's users share."""

    __tablename__ = "app_state"
    app_name: Mapped[str] = _key()
    key: Mapped[str] = _key()
    position: Mapped[int] = mapped_column(Int64())
    value: Mapped[str] = mapped_column(FreeText())


class AppUserStateRow(Base):
    """An entry of the state that a user's sessions share."""

    __tablename__ = "app_user_state"
    app_name: Mapped[str] = _key()
    user_id: Mapped[str] = _key()
    key: Mapped[str] = _key()
    position: Mapped[int] = mapped_column(Int64())
    value: Mapped[str] = mapped_column(FreeText())


class AppArtifactRow(Base):
    """An artifact, and how many versions it has had. `session_id` '': it belongs to the user."""

    __tablename__ = "app_artifacts"
    id: Mapped[str] = _key()
    app_name: Mapped[str] = mapped_column(Label())
    user_id: Mapped[str] = mapped_column(Label())
    session_id: Mapped[str] = mapped_column(Label())
    filename: Mapped[str] = mapped_column(Label())
    versions: Mapped[int] = mapped_column(Int64())
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    updated_at: Mapped[datetime] = mapped_column(EpochMs())
    __table_args__ = (
        UniqueConstraint("app_name", "user_id", "session_id", "filename"),
        Index("ix_app_artifacts_updated_at_id", "updated_at", "id"),
    )


class AppArtifactVersionRow(Base):
    """One version of an artifact: JSON text, and the bytes that belong to it, unless they are a blob."""

    __tablename__ = "app_artifact_versions"
    artifact_id: Mapped[str] = mapped_column(Label(), ForeignKey(f"{SCHEMA_TOKEN}.app_artifacts.id"), primary_key=True)
    version: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    created_at: Mapped[datetime] = mapped_column(EpochMs())
    mime_type: Mapped[str | None] = mapped_column(FreeText())
    metadata_text: Mapped[str] = mapped_column(FreeText())
    part: Mapped[str] = mapped_column(FreeText())
    data: Mapped[bytes | None] = mapped_column(LargeBinary())


class AppArtifactBlobRow(Base):
    """The blob with the bytes of an artifact's version, instead of its row."""

    __tablename__ = "app_artifact_blobs"
    artifact_id: Mapped[str] = mapped_column(
        Label(), ForeignKey(f"{SCHEMA_TOKEN}.app_artifacts.id", ondelete="CASCADE"), primary_key=True
    )
    version: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    sha256: Mapped[str] = mapped_column(Label(), ForeignKey(blobs.c.sha256))
    __table_args__ = (Index("ix_app_artifact_blobs_sha256", "sha256"),)


class AppMemoryRow(Base):
    """Something said in a session, ordered by `place` and `position`. A deleted one stays, empty, so that it cannot come back."""

    __tablename__ = "app_memories"
    app_name: Mapped[str] = _key()
    user_id: Mapped[str] = _key()
    session_id: Mapped[str] = _key()
    id: Mapped[str] = _key()
    place: Mapped[int] = mapped_column(Int64())
    position: Mapped[int] = mapped_column(Int64())
    stored_by: Mapped[str] = mapped_column(Label())
    updated_at: Mapped[datetime] = mapped_column(EpochMs())
    deleted_at: Mapped[datetime | None] = mapped_column(EpochMs())
    words: Mapped[str] = mapped_column(FreeText())
    text: Mapped[str] = mapped_column(FreeText())
    entry: Mapped[str] = mapped_column(FreeText())
    __table_args__ = (Index("ix_app_memories_updated_at", "updated_at"),)


sessions = table_of(AppSessionRow)
events = table_of(AppSessionEventRow)
session_state = table_of(AppSessionStateRow)
app_state = table_of(AppStateRow)
user_state = table_of(AppUserStateRow)
artifacts = table_of(AppArtifactRow)
artifact_versions = table_of(AppArtifactVersionRow)
artifact_blobs = table_of(AppArtifactBlobRow)
memories = table_of(AppMemoryRow)
BELOW = (events, session_state)
"""The tables whose rows belong to a session."""
artifact_blobs.info["unlogged"] = True  # as the blobs that it names
Streams("app_session", shared="app_sessions").over(sessions)
Streams("app", shared="apps").by("app_name", app_state, user_state, memories)
_ARTIFACT = Streams("app_artifact", shared="app_artifacts")
_ARTIFACT.by("id", artifacts)
_ARTIFACT.by("artifact_id", artifact_versions)
