"""Replay streams: what a server sent to the clients of its sessions, so that they are sent what they missed.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "replay_sessions",
        sa.Column("id", label(), nullable=False),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("updated_at", whole(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_replay_sessions")),
    )
    op.create_index("ix_replay_sessions_updated_at_id", "replay_sessions", ["updated_at", "id"])
    op.create_table(
        "replay_messages",
        sa.Column("session_id", label(), nullable=False),
        sa.Column("id", label(), nullable=False),
        sa.Column("stream", label(), nullable=False),
        sa.Column("position", whole(), nullable=False),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("message", label(), nullable=True),
        sa.ForeignKeyConstraint(["session_id"], ["replay_sessions.id"], name=op.f("fk_replay_messages_session_id")),
        sa.PrimaryKeyConstraint("session_id", "id", name=op.f("pk_replay_messages")),
    )
    op.create_index(
        "ix_replay_messages_session_id_stream_position",
        "replay_messages",
        ["session_id", "stream", "position"],
        unique=True,
    )
    op.execute(sa.text("UPDATE _meta SET value = '0013' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
