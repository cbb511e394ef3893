"""Replay streams: what a server sent to the clients of its sessions; and tasks that agents do for others.

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


def flag() -> sa.types.TypeEngine:
    return sa.Boolean().with_variant(sa.Integer(), "sqlite")


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
    op.create_table(
        "agent_task_records",
        sa.Column("id", label(), nullable=False),
        sa.Column("owner", label(), nullable=False),
        sa.Column("task_id", label(), nullable=False),
        sa.Column("context_id", label(), nullable=False),
        sa.Column("state", label(), nullable=False),
        sa.Column("final", flag(), nullable=False),
        sa.Column("status_key", label(), nullable=False),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("updated_at", whole(), nullable=False),
        sa.Column("head", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agent_task_records")),
    )
    op.create_index("ix_agent_task_records_owner_task_id", "agent_task_records", ["owner", "task_id"], unique=True)
    op.create_index("ix_agent_task_records_owner_status_key_task_id", "agent_task_records", ["owner", "status_key", "task_id"])
    op.create_index("ix_agent_task_records_updated_at_id", "agent_task_records", ["updated_at", "id"])
    op.create_table(
        "agent_task_pieces",
        sa.Column("task", label(), nullable=False),
        sa.Column("kind", label(), nullable=False),
        sa.Column("position", whole(), autoincrement=False, nullable=False),
        sa.Column("part", whole(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["task"], ["agent_task_records.id"], name=op.f("fk_agent_task_pieces_task")),
        sa.PrimaryKeyConstraint("task", "kind", "position", "part", name=op.f("pk_agent_task_pieces")),
    )
    op.create_table(
        "agent_task_webhooks",
        sa.Column("task_id", label(), nullable=False),
        sa.Column("owner", label(), nullable=False),
        sa.Column("id", label(), nullable=False),
        sa.Column("place", label(), nullable=False),
        sa.Column("updated_at", whole(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "owner", "id", name=op.f("pk_agent_task_webhooks")),
    )
    op.execute(sa.text("UPDATE _meta SET value = '0013' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
