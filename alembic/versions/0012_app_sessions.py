"""Application sessions: sessions of users with agents, their events, state in three scopes, artifacts and memories.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql, sqlite

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def amount() -> sa.types.TypeEngine:
    return sa.Double().with_variant(sqlite.REAL(), "sqlite")


def labels(*names: str) -> list[sa.Column]:
    return [sa.Column(name, label(), nullable=False) for name in names]


def wholes(*names: str) -> list[sa.Column]:
    return [sa.Column(name, whole(), autoincrement=False, nullable=False) for name in names]


def state(name: str, *owner: str) -> None:
    op.create_table(
        name,
        *labels(*owner, "key"),
        *wholes("position"),
        *labels("value"),
        *(
            [sa.ForeignKeyConstraint(["app_session_id"], ["app_user_sessions.id"], name=op.f(f"fk_{name}_app_session_id"))]
            if owner == ("app_session_id",)
            else []
        ),
        sa.PrimaryKeyConstraint(*owner, "key", name=op.f(f"pk_{name}")),
    )


def upgrade() -> None:
    op.create_table(
        "app_user_sessions",
        *labels("id", "app_name", "user_id", "session_id"),
        *wholes("revision"),
        sa.Column("update_time", amount(), nullable=False),
        *wholes("created_at", "updated_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_app_user_sessions")),
        sa.UniqueConstraint("app_name", "user_id", "session_id", name=op.f("uq_app_user_sessions_app_name_user_id_session_id")),
    )
    op.create_index("ix_app_user_sessions_updated_at_id", "app_user_sessions", ["updated_at", "id"])
    op.create_table(
        "app_session_events",
        *labels("app_session_id"),
        *wholes("position"),
        *labels("id"),
        sa.Column("timestamp", amount(), nullable=False),
        *labels("author", "invocation_id", "data"),
        sa.ForeignKeyConstraint(["app_session_id"], ["app_user_sessions.id"], name=op.f("fk_app_session_events_app_session_id")),
        sa.PrimaryKeyConstraint("app_session_id", "position", name=op.f("pk_app_session_events")),
    )
    op.create_index("ix_app_session_events_timestamp", "app_session_events", ["app_session_id", "timestamp", "position"])
    op.create_index("ix_app_session_events_id", "app_session_events", ["app_session_id", "id"])
    state("app_session_state", "app_session_id")
    state("app_state", "app_name")
    state("app_user_state", "app_name", "user_id")
    op.create_table(
        "app_artifacts",
        *labels("id", "app_name", "user_id", "session_id", "filename"),
        *wholes("versions", "created_at", "updated_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_app_artifacts")),
        sa.UniqueConstraint(
            "app_name", "user_id", "session_id", "filename", name=op.f("uq_app_artifacts_app_name_user_id_session_id_filename")
        ),
    )
    op.create_index("ix_app_artifacts_updated_at_id", "app_artifacts", ["updated_at", "id"])
    op.create_table(
        "app_artifact_versions",
        *labels("artifact_id"),
        *wholes("version", "created_at"),
        sa.Column("mime_type", label(), nullable=True),
        *labels("metadata_text", "part"),
        sa.Column("data", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["artifact_id"], ["app_artifacts.id"], name=op.f("fk_app_artifact_versions_artifact_id")),
        sa.PrimaryKeyConstraint("artifact_id", "version", name=op.f("pk_app_artifact_versions")),
    )
    op.create_table(
        "app_memories",
        *labels("app_name", "user_id", "session_id", "id"),
        *wholes("place", "position"),
        *labels("stored_by"),
        *wholes("updated_at"),
        sa.Column("deleted_at", whole(), nullable=True),
        *labels("words", "text", "entry"),
        sa.PrimaryKeyConstraint("app_name", "user_id", "session_id", "id", name=op.f("pk_app_memories")),
    )
    op.create_index("ix_app_memories_updated_at", "app_memories", ["updated_at"])
    op.execute(sa.text("UPDATE _meta SET value = '0012' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
