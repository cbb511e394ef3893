"""Workflow runs with their executions, approvals and overrides; messaging sessions and messages.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def json() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def amount() -> sa.types.TypeEngine:
    return sa.Double().with_variant(sa.REAL(), "sqlite")


def flag() -> sa.types.TypeEngine:
    return sa.Boolean().with_variant(sa.Integer(), "sqlite")


def default(on: bool) -> sa.TextClause:
    """The default of a flag, in the words of the database."""
    postgres = op.get_context().dialect.name == "postgresql"
    return sa.text(str(on).lower() if postgres else str(int(on)))


def instant() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True, precision=3), "postgresql")


def primary(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=op.f(f"pk_{table}"))


def newest(prefix: str, table: str, *columns: str) -> None:
    """An index over the columns, each of whose ranges is ordered as lists are: the newest first."""
    op.create_index(f"ix_{table}_{prefix}newest", table, [*columns, sa.text("started_at DESC"), sa.text("id DESC")])


def partial(name: str, table: str, columns: list, where: str, where_postgres: str | None = None, unique: bool = False) -> None:
    op.create_index(
        name, table, columns, unique=unique, sqlite_where=sa.text(where), postgresql_where=sa.text(where_postgres or where)
    )


def upgrade() -> None:
    op.create_table(
        "workflow_runs",
        sa.Column("id", label(), nullable=False),
        sa.Column("workflow_name", label(), nullable=False),
        sa.Column("trigger_id", label(), nullable=False),
        sa.Column("repo", label()),
        sa.Column("issue_number", whole()),
        sa.Column("current_phase", label(), nullable=False),
        sa.Column("status", label(), server_default="running", nullable=False),
        sa.Column("restart_count", whole(), server_default=sa.text("0"), nullable=False),
        sa.Column("max_restarts", whole()),
        sa.Column("lease_owner", label()),
        sa.Column("lease_expires_at", instant()),
        sa.Column("lease_token", whole(), server_default=sa.text("0"), nullable=False),
        sa.Column("started_at", instant(), nullable=False),
        sa.Column("updated_at", instant(), nullable=False),
        sa.Column("finished_at", instant()),
        sa.Column("phase_history", json(), server_default="[]", nullable=False),
        sa.Column("context", json()),
        sa.Column("scratch", json()),
        sa.Column("node_statuses", json()),
        primary("workflow_runs", "id"),
        sa.CheckConstraint("max_restarts IS NULL OR restart_count <= max_restarts", name=op.f("ck_workflow_runs_max_restarts")),
    )
    op.create_index("idx_workflow_runs_trigger", "workflow_runs", ["trigger_id", "status"])
    newest("", "workflow_runs")
    newest("workflow_name_", "workflow_runs", "workflow_name")
    newest("status_", "workflow_runs", "status")
    newest("workflow_name_status_", "workflow_runs", "workflow_name", "status")
    newest("trigger_id_", "workflow_runs", "trigger_id")
    partial("ix_workflow_runs_leased", "workflow_runs", ["lease_expires_at"], "lease_expires_at IS NOT NULL")
    op.create_table(
        "executions",
        sa.Column("id", label(), nullable=False),
        sa.Column("trigger_type", label(), nullable=False),
        sa.Column("trigger_id", label(), nullable=False),
        sa.Column("skill", label(), nullable=False),
        sa.Column("repo", label()),
        sa.Column("issue_number", whole()),
        sa.Column("started_at", instant(), nullable=False),
        sa.Column("finished_at", instant()),
        sa.Column("success", flag()),
        sa.Column("turns", whole()),
        sa.Column("duration_ms", whole()),
        sa.Column("session_id", label()),
        sa.Column("cost_usd", amount()),
        sa.Column("input_tokens", whole()),
        sa.Column("cache_creation_input_tokens", whole()),
        sa.Column("cache_read_input_tokens", whole()),
        sa.Column("output_tokens", whole()),
        sa.Column("api_duration_ms", whole()),
        sa.Column("stop_reason", label()),
        sa.Column("workflow_run_id", label()),
        sa.Column("error", label()),
        sa.Column("extension_status", json()),
        sa.Column("output_text", label()),
        primary("executions", "id"),
    )
    op.create_index("idx_executions_trigger", "executions", ["trigger_type", "trigger_id"])
    op.create_index("idx_executions_skill", "executions", ["skill", "started_at"])
    op.create_index("idx_executions_workflow_run", "executions", ["workflow_run_id", "skill"])
    op.create_index("ix_executions_trigger_id_skill_started_at", "executions", ["trigger_id", "skill", "started_at"])
    newest("", "executions")
    partial("ix_executions_unfinished", "executions", ["trigger_id"], "finished_at IS NULL")
    op.create_table(
        "workflow_approvals",
        sa.Column("id", label(), nullable=False),
        sa.Column("workflow_run_id", label(), nullable=False),
        sa.Column("gate", label(), nullable=False),
        sa.Column("status", label(), server_default="pending", nullable=False),
        sa.Column("kind", label(), server_default="approve", nullable=False),
        sa.Column("requested_by", label()),
        sa.Column("responded_by", label()),
        sa.Column("responded_at", instant()),
        sa.Column("created_at", instant(), nullable=False),
        sa.Column("summary", label(), nullable=False),
        sa.Column("response", label()),
        primary("workflow_approvals", "id"),
    )
    op.create_index(
        "ix_workflow_approvals_workflow_run_id_created_at_id", "workflow_approvals", ["workflow_run_id", "created_at", "id"]
    )
    partial("ix_workflow_approvals_pending", "workflow_approvals", ["created_at", "id"], "status = 'pending'")
    op.create_table(
        "cron_overrides",
        sa.Column("name", label(), nullable=False),
        sa.Column("enabled", flag(), server_default=default(True), nullable=False),
        sa.Column("schedule", label()),
        sa.Column("updated_at", instant(), nullable=False),
        sa.Column("updated_by", label()),
        primary("cron_overrides", "name"),
    )
    op.create_table(
        "workflow_overrides",
        sa.Column("name", label(), nullable=False),
        sa.Column("enabled", flag(), server_default=default(True), nullable=False),
        sa.Column("updated_at", instant(), nullable=False),
        sa.Column("updated_by", label()),
        primary("workflow_overrides", "name"),
    )
    op.create_table(
        "messaging_sessions",
        sa.Column("id", label(), nullable=False),
        sa.Column("platform", label(), nullable=False),
        sa.Column("channel_id", label(), nullable=False),
        sa.Column("thread_id", label()),
        sa.Column("user_id", label(), nullable=False),
        sa.Column("agent_session_id", label()),
        sa.Column("created_at", instant(), nullable=False),
        sa.Column("last_activity_at", instant(), nullable=False),
        sa.Column("message_count", whole(), server_default=sa.text("0")),
        sa.Column("active", flag(), server_default=default(True)),
        primary("messaging_sessions", "id"),
    )
    op.create_index("idx_msg_sessions_lookup", "messaging_sessions", ["platform", "channel_id", "thread_id", "user_id"])
    partial(
        "idx_msg_sessions_one_active",
        "messaging_sessions",
        ["platform", "channel_id", sa.text("coalesce(thread_id, '')"), "user_id"],
        "active = 1",
        "active",
        unique=True,
    )
    op.create_index("ix_messaging_sessions_latest", "messaging_sessions", [sa.text("last_activity_at DESC"), sa.text("id DESC")])
    op.create_table(
        "messaging_messages",
        sa.Column("id", whole(), sa.Identity(), nullable=False),
        sa.Column("session_id", label(), nullable=False),
        sa.Column("role", label(), nullable=False),
        sa.Column("timestamp", instant(), nullable=False),
        sa.Column("platform_message_id", label()),
        sa.Column("content", label(), nullable=False),
        primary("messaging_messages", "id"),
        sa.ForeignKeyConstraint(["session_id"], ["messaging_sessions.id"], name=op.f("fk_messaging_messages_session_id")),
        sqlite_autoincrement=True,
    )
    op.create_index("idx_msg_messages_session", "messaging_messages", ["session_id", "timestamp"])
    # the mark that opening a database compares, beside Alembic's own
    op.execute("UPDATE _meta SET value = '0002' WHERE key = 'schema_version'")


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
