"""Transcripts: sessions of agents, and their entries as JSON text.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "transcript_sessions",
        sa.Column("id", label(), nullable=False),
        sa.Column("project", label(), nullable=False),
        sa.Column("session_id", label(), nullable=False),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("updated_at", whole(), nullable=False),
        sa.Column("main_at", whole(), nullable=True),
        sa.Column("length", whole(), nullable=False),
        sa.Column("summary", label(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transcript_sessions")),
    )
    op.create_index("ix_transcript_sessions_project_session_id", "transcript_sessions", ["project", "session_id"], unique=True)
    op.create_index("ix_transcript_sessions_session_id", "transcript_sessions", ["session_id"])
    op.create_index("ix_transcript_sessions_updated_at_id", "transcript_sessions", ["updated_at", "id"])
    op.create_table(
        "transcript_entries",
        sa.Column("transcript_id", label(), nullable=False),
        sa.Column("subpath", label(), nullable=False),
        sa.Column("position", whole(), autoincrement=False, nullable=False),
        sa.Column("uuid", label(), nullable=True),
        sa.Column("entry", label(), nullable=False),
        sa.ForeignKeyConstraint(["transcript_id"], ["transcript_sessions.id"], name=op.f("fk_transcript_entries_transcript_id")),
        sa.PrimaryKeyConstraint("transcript_id", "subpath", "position", name=op.f("pk_transcript_entries")),
    )
    set_ = sa.text("uuid IS NOT NULL")
    op.create_index(
        "ix_transcript_entries_uuid",
        "transcript_entries",
        ["transcript_id", "subpath", "uuid"],
        unique=True,
        sqlite_where=set_,
        postgresql_where=set_,
    )
    op.execute(sa.text("UPDATE _meta SET value = '0011' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
