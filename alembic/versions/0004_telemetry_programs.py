"""Telemetry of agent instances, task queues of workspaces, and programs with their executions, bindings and agents.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def json() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def flag() -> sa.types.TypeEngine:
    return sa.Boolean().with_variant(sa.Integer(), "sqlite")


def seconds() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True, precision=3), "postgresql")


def on_postgres() -> bool:
    return op.get_context().dialect.name == "postgresql"


def now() -> sa.TextClause:
    """This second, for what raw writers leave out."""
    return sa.text("date_trunc('second', now())" if on_postgres() else "(datetime('now'))")


def scope(name: str) -> sa.Column:
    """Whose the row is: on SQLite '' is the file's own, on Postgres an INSERT has to say, or its session."""
    default = rf"NULLIF(current_setting('persist.{name}', true), '')" if on_postgres() else "''"
    return sa.Column(name, label(), server_default=sa.text(default), nullable=False)


def primary(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=op.f(f"pk_{table}"))


def numbered(table: str, scope_name: str) -> list:
    """An integer key that is never given twice: by itself on SQLite, within its scope on Postgres."""
    key = (scope_name, "id") if on_postgres() else ("id",)
    return [sa.Column("id", whole(), sa.Identity(), nullable=False), scope(scope_name), primary(table, *key)]


def upgrade() -> None:
    op.create_table(
        "status_log",
        *numbered("status_log", "instance_id"),
        sa.Column("occurred_at", whole(), nullable=False),
        sa.Column("new_status", label(), nullable=False),
        sa.Column("metadata", json()),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_status_log_instance_id_id", "status_log", ["instance_id", "id"])
    op.create_index("ix_status_log_instance_id_new_status_id", "status_log", ["instance_id", "new_status", "id"])
    op.create_table(
        "agent_tags",
        scope("instance_id"),
        sa.Column("kind", label(), nullable=False),
        sa.Column("value", label(), nullable=False),
        sa.Column("first_seen", whole(), nullable=False),
        sa.Column("last_seen", whole(), nullable=False),
        primary("agent_tags", "instance_id", "kind", "value"),
    )
    op.create_table(
        "github_link_statuses",
        scope("instance_id"),
        sa.Column("url", label(), nullable=False),
        sa.Column("kind", label(), nullable=False),
        sa.Column("host", label(), nullable=False),
        sa.Column("owner", label(), nullable=False),
        sa.Column("repo", label(), nullable=False),
        sa.Column("resource_number", whole(), nullable=False),
        sa.Column("issue_state", label()),
        sa.Column("pr_state", label()),
        sa.Column("build_state", label()),
        sa.Column("review_state", label()),
        sa.Column("pr_is_draft", flag()),
        sa.Column("fetched_at", whole(), nullable=False),
        sa.Column("refresh_after", whole(), nullable=False),
        sa.Column("last_error", label()),
        primary("github_link_statuses", "instance_id", "url"),
    )
    op.create_index(
        "ix_github_link_statuses_instance_id_refresh_after_url",
        "github_link_statuses",
        ["instance_id", "refresh_after", "url"],
    )
    op.create_table(
        "usage_samples",
        scope("instance_id"),
        sa.Column("occurred_at", whole(), nullable=False, autoincrement=False),
        sa.Column("token_input", whole()),
        sa.Column("token_output", whole()),
        sa.Column("token_cache_read", whole()),
        sa.Column("token_cache_write", whole()),
        sa.Column("cost_usd_micros", whole()),
        primary("usage_samples", "instance_id", "occurred_at"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tool_history",
        *numbered("tool_history", "instance_id"),
        sa.Column("occurred_at", whole(), nullable=False),
        sa.Column("tool_key", label(), nullable=False),
        sa.Column("exit_code", whole()),
        sa.Column("duration_ms", whole()),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tool_history_instance_id_id", "tool_history", ["instance_id", "id"])
    op.create_table(
        "window_marks",
        scope("instance_id"),
        sa.Column("window", label(), nullable=False),
        sa.Column("inserted", whole(), nullable=False),
        primary("window_marks", "instance_id", "window"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tasks",
        scope("workspace_id"),
        sa.Column("id", label(), nullable=False),
        sa.Column("source_id", label(), nullable=False),
        sa.Column("kind", label(), nullable=False),
        sa.Column("title", label(), nullable=False),
        sa.Column("state", label(), server_default="queued", nullable=False),
        sa.Column("instance_name", label()),
        sa.Column("discovered_at", whole(), nullable=False),
        sa.Column("claimed_at", whole()),
        sa.Column("completed_at", whole()),
        sa.Column("outcome", label()),
        sa.Column("labels", json(), server_default="[]", nullable=False),
        sa.Column("links", json(), server_default="[]", nullable=False),
        sa.Column("body", label()),
        primary("tasks", "workspace_id", "id"),
    )
    op.create_index("ix_tasks_workspace_id_state_discovered_at_id", "tasks", ["workspace_id", "state", "discovered_at", "id"])
    op.create_table(
        "run",
        sa.Column("id", label(), nullable=False),
        sa.Column("program_path", label()),
        sa.Column("started_at", seconds(), server_default=now()),
        sa.Column("updated_at", seconds(), server_default=now()),
        sa.Column("status", label(), server_default="running"),
        sa.Column("state_mode", label(), server_default="sqlite"),
        sa.Column("written_status", label()),
        sa.Column("anonymous_names", whole(), server_default="0", nullable=False),
        sa.Column("program_source", label()),
        primary("run", "id"),
    )
    op.create_index("ix_run_started_at_id", "run", ["started_at", "id"])
    op.create_index("ix_run_status_started_at_id", "run", ["status", "started_at", "id"])
    parent = (
        sa.ForeignKeyConstraint(
            ["run_id", "parent_id"], ["execution.run_id", "execution.id"], name=op.f("fk_execution_run_id_parent_id")
        )
        if on_postgres()
        else sa.ForeignKeyConstraint(["parent_id"], ["execution.id"], name=op.f("fk_execution_parent_id"))
    )
    op.create_table(
        "execution",
        *numbered("execution", "run_id"),
        sa.Column("statement_index", whole()),
        sa.Column("status", label()),
        sa.Column("written_status", label()),
        sa.Column("started_at", seconds()),
        sa.Column("completed_at", seconds()),
        sa.Column("updated_at", seconds(), server_default=now()),
        sa.Column("parent_id", whole()),
        sa.Column("statement_text", label()),
        sa.Column("error_message", label()),
        sa.Column("metadata", json(), server_default="{}"),
        parent,
        sqlite_autoincrement=True,
    )
    op.create_index("ix_execution_run_id_status_id", "execution", ["run_id", "status", "id"])
    op.create_index("ix_execution_parent_id", "execution", ["parent_id"])
    op.create_table(
        "bindings",
        scope("run_id"),
        sa.Column("name", label()),
        sa.Column("execution_id", whole()),
        sa.Column("kind", label()),
        sa.Column("source_statement", label()),
        sa.Column("created_at", seconds(), server_default=now()),
        sa.Column("updated_at", seconds(), server_default=now()),
        sa.Column("attachment_path", label()),
        sa.Column("value", label()),
    )
    op.create_index(
        "uq_bindings_frame_name",
        "bindings",
        ["run_id", "name", sa.text("coalesce(execution_id, -1)")],
        unique=True,
    )
    op.create_table(
        "agents",
        scope("run_id"),
        sa.Column("name", label(), nullable=False),
        sa.Column("scope", label()),
        sa.Column("created_at", seconds(), server_default=now()),
        sa.Column("updated_at", seconds(), server_default=now()),
        sa.Column("memory", label()),
        primary("agents", "run_id", "name"),
    )
    op.create_table(
        "agent_segments",
        *numbered("agent_segments", "run_id"),
        sa.Column("agent_name", label()),
        sa.Column("segment_number", whole()),
        sa.Column("timestamp", seconds(), server_default=now()),
        sa.Column("prompt", label()),
        sa.Column("summary", label()),
        sa.UniqueConstraint(
            "run_id", "agent_name", "segment_number", name=op.f("uq_agent_segments_run_id_agent_name_segment_number")
        ),
        sa.ForeignKeyConstraint(
            ["run_id", "agent_name"], ["agents.run_id", "agents.name"], name=op.f("fk_agent_segments_run_id")
        ),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "imports",
        scope("run_id"),
        sa.Column("alias", label(), nullable=False),
        sa.Column("source_url", label()),
        sa.Column("fetched_at", seconds()),
        sa.Column("inputs_schema", json()),
        sa.Column("outputs_schema", json()),
        primary("imports", "run_id", "alias"),
    )
    # the mark that opening a database compares, beside Alembic's own
    op.execute("UPDATE _meta SET value = '0004' WHERE key = 'schema_version'")


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
