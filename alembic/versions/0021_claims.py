"""What decides when a run is claimed, how often it is tried, and why it failed; schedules of runs.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def instant() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True, precision=3), "postgresql")


def json() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def flag() -> sa.types.TypeEngine:
    return sa.Boolean().with_variant(sa.Integer(), "sqlite")


def partial(name: str, columns: list, where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "workflow_runs", columns, sqlite_where=condition, postgresql_where=condition)


def upgrade() -> None:
    op.add_column("workflow_runs", sa.Column("priority", whole(), server_default=sa.text("0"), nullable=False))
    op.add_column("workflow_runs", sa.Column("queued_at", instant(), nullable=True))
    op.add_column("workflow_runs", sa.Column("not_before", instant(), nullable=True))
    op.add_column("workflow_runs", sa.Column("attempt", whole(), server_default=sa.text("1"), nullable=False))
    op.add_column("workflow_runs", sa.Column("max_attempts", whole(), nullable=True))
    op.add_column("workflow_runs", sa.Column("failure_kind", label(), nullable=True))
    op.add_column("workflow_runs", sa.Column("last_error", label(), nullable=True))
    ready, delayed = "status || '' = 'queued' AND not_before IS NULL", "status || '' = 'queued' AND not_before IS NOT NULL"
    in_line = [sa.text("priority DESC"), sa.text("coalesce(queued_at, started_at)"), "id"]
    partial("ix_workflow_runs_ready", in_line, ready)
    partial("ix_workflow_runs_workflow_name_ready", ["workflow_name", *in_line], ready)
    partial("ix_workflow_runs_delayed", ["not_before"], delayed)
    newest = ["failure_kind", sa.text("started_at DESC"), sa.text("id DESC")]
    partial("ix_workflow_runs_failure_kind_newest", newest, "failure_kind IS NOT NULL")
    on = sa.text("1" if op.get_context().dialect.name == "sqlite" else "true")
    op.create_table(
        "workflow_schedules",
        sa.Column("name", label(), nullable=False),
        sa.Column("workflow_name", label(), nullable=False),
        sa.Column("cron", label(), nullable=False),
        sa.Column("timezone", label(), nullable=False),
        sa.Column("next_fire_at", instant(), nullable=True),
        sa.Column("last_fire_at", instant(), nullable=True),
        sa.Column("fires_by", label(), nullable=False),
        sa.Column("enabled", flag(), server_default=on, nullable=False),
        sa.Column("catch_up", label(), server_default="one", nullable=False),
        sa.Column("updated_at", instant(), nullable=False),
        sa.Column("context", json(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_workflow_schedules")),
    )
    op.execute(sa.text("UPDATE _meta SET value = '0021' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
