"""The database's own facts (_meta) and every table of chat.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = ("persist",)
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def json() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def amount() -> sa.types.TypeEngine:
    return sa.Double().with_variant(sa.REAL(), "sqlite")


def cascade(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [target], name=op.f(f"fk_{table}_{column}"), ondelete="CASCADE")


def primary(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=op.f(f"pk_{table}"))


def counter(name: str) -> sa.Column:
    return sa.Column(name, whole(), server_default=sa.text("0"), nullable=False)


def upgrade() -> None:
    meta = op.create_table(
        "_meta",
        sa.Column("key", label(), nullable=False),
        sa.Column("value", label(), nullable=False),
        primary("_meta", "key"),
    )
    op.create_table(
        "chat_sessions",
        sa.Column("id", label(), nullable=False),
        sa.Column("agent", label(), nullable=False),
        sa.Column("workspace_root", label()),
        sa.Column("parent_id", label()),
        sa.Column("parent_message_id", label()),
        counter("prompt_tokens"),
        counter("completion_tokens"),
        counter("reasoning_tokens"),
        counter("cache_read"),
        counter("cache_write"),
        counter("total_tokens"),
        sa.Column("cost_usd", amount(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("updated_at", whole(), nullable=False),
        sa.Column("archived_at", whole()),
        sa.Column("model_json", json(), nullable=False),
        sa.Column("permissions_json", json(), server_default="[]", nullable=False),
        sa.Column("metadata_json", json(), server_default="{}", nullable=False),
        primary("chat_sessions", "id"),
    )
    op.create_index("ix_chat_sessions_agent_updated_at", "chat_sessions", ["agent", "updated_at"])
    op.create_index("ix_chat_sessions_workspace_root_updated_at", "chat_sessions", ["workspace_root", "updated_at"])
    op.create_index("ix_chat_sessions_updated_at_id", "chat_sessions", ["updated_at", "id"])
    op.create_index("ix_chat_sessions_parent_id", "chat_sessions", ["parent_id"])
    op.create_index("ix_chat_sessions_archived_at", "chat_sessions", ["archived_at"])
    op.create_table(
        "chat_messages",
        sa.Column("id", label(), nullable=False),
        sa.Column("session_id", label(), nullable=False),
        sa.Column("role", label(), nullable=False),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("updated_at", whole(), nullable=False),
        sa.Column("metadata_json", json(), server_default="{}", nullable=False),
        primary("chat_messages", "id"),
        sa.CheckConstraint("role IN ('user', 'assistant', 'system')", name=op.f("ck_chat_messages_role")),
        cascade("chat_messages", "session_id", "chat_sessions.id"),
    )
    op.create_index("ix_chat_messages_session_id_created_at", "chat_messages", ["session_id", "created_at"])
    op.create_index(
        "ix_chat_messages_queued",
        "chat_messages",
        ["session_id"],
        sqlite_where=sa.text(
            "CASE WHEN json_valid(metadata_json) THEN json_extract(metadata_json, '$.queued_at') END IS NOT NULL"
        ),
        postgresql_where=sa.text("(metadata_json ->> 'queued_at') IS NOT NULL"),
    )
    op.create_table(
        "chat_parts",
        sa.Column("id", label(), nullable=False),
        sa.Column("message_id", label(), nullable=False),
        sa.Column("session_id", label(), nullable=False),
        sa.Column("index", whole(), nullable=False),
        sa.Column("type", label(), nullable=False),
        sa.Column("tool_call_id", label()),
        sa.Column("tool_state", label()),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("updated_at", whole(), nullable=False),
        sa.Column("data_json", json(), nullable=False),
        primary("chat_parts", "id"),
        cascade("chat_parts", "message_id", "chat_messages.id"),
    )
    op.create_index("ix_chat_parts_message_id_index", "chat_parts", ["message_id", "index"], unique=True)
    op.create_index("ix_chat_parts_session_id", "chat_parts", ["session_id"])
    op.create_index("ix_chat_parts_tool_call_id", "chat_parts", ["tool_call_id"])
    op.create_index(
        "ix_chat_parts_compaction",
        "chat_parts",
        ["session_id"],
        sqlite_where=sa.text("type = 'data-compaction'"),
        postgresql_where=sa.text("type = 'data-compaction'"),
    )
    unfinished = sa.text("tool_state IN ('input-streaming', 'input-available', 'approval-requested', 'approval-responded')")
    op.create_index(
        "ix_chat_parts_unfinished",
        "chat_parts",
        ["session_id", "tool_call_id"],
        sqlite_where=unfinished,
        postgresql_where=unfinished,
    )
    op.create_table(
        "chat_part_deltas",
        sa.Column("part_id", label(), nullable=False),
        sa.Column("seq", whole(), nullable=False),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("delta", label(), nullable=False),
        primary("chat_part_deltas", "part_id", "seq"),
        cascade("chat_part_deltas", "part_id", "chat_parts.id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "chat_turns",
        sa.Column("session_id", label(), nullable=False),
        sa.Column("message_id", label()),
        sa.Column("state", label(), nullable=False),
        sa.Column("owner", label(), nullable=False),
        sa.Column("started_at", whole(), nullable=False),
        sa.Column("seen_at", whole(), nullable=False),
        primary("chat_turns", "session_id"),
        sa.CheckConstraint("state IN ('running', 'error')", name=op.f("ck_chat_turns_state")),
        cascade("chat_turns", "session_id", "chat_sessions.id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "chat_step_usage",
        sa.Column("message_id", label(), nullable=False),
        sa.Column("step", whole(), nullable=False),
        sa.Column("input", whole(), nullable=False),
        sa.Column("output", whole(), nullable=False),
        sa.Column("reasoning", whole(), nullable=False),
        sa.Column("cache_read", whole(), nullable=False),
        sa.Column("cache_write", whole(), nullable=False),
        sa.Column("cost_usd", amount(), nullable=False),
        sa.Column("created_at", whole(), nullable=False),
        primary("chat_step_usage", "message_id", "step"),
        cascade("chat_step_usage", "message_id", "chat_messages.id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "system_prompts",
        sa.Column("digest", label(), nullable=False),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("body", label(), nullable=False),
        primary("system_prompts", "digest"),
    )
    op.bulk_insert(meta, [{"key": "schema_version", "value": "0001"}])


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
