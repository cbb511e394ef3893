"""Limits: how many runs of a workflow or a key run at once, and are claimed in a period.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def instant() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True, precision=3), "postgresql")


def partial(name: str, columns: list, where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "workflow_runs", columns, sqlite_where=condition, postgresql_where=condition)


def upgrade() -> None:
    op.add_column("workflow_runs", sa.Column("concurrency_key", label(), nullable=True))
    group = ["workflow_name", sa.text("coalesce(concurrency_key, '')")]
    in_line = [sa.text("priority DESC"), sa.text("coalesce(queued_at, started_at)"), "id"]
    partial("ix_workflow_runs_key_group_ready", [*group, *in_line], "status || '' = 'queued' AND not_before IS NULL")
    partial("ix_workflow_runs_key_group_delayed", [*group, "not_before"], "status || '' = 'queued' AND not_before IS NOT NULL")
    running = "status || '' = 'running'"
    partial("ix_workflow_runs_running_of_workflow", ["workflow_name"], running)
    partial("ix_workflow_runs_running_under_key", ["concurrency_key"], f"{running} AND concurrency_key IS NOT NULL")
    op.create_table(
        "workflow_limits",
        sa.Column("key", label(), nullable=False),
        sa.Column("concurrency", whole(), nullable=True),
        sa.Column("rate", whole(), nullable=True),
        sa.Column("per_ms", whole(), nullable=True),
        sa.Column("updated_at", instant(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_workflow_limits")),
    )
    op.create_table(
        "workflow_starts",
        sa.Column("key", label(), nullable=False),
        sa.Column("seq", whole(), nullable=False, autoincrement=False),
        sa.Column("at_ms", whole(), nullable=False),
        sa.ForeignKeyConstraint(["key"], ["workflow_limits.key"], name=op.f("fk_workflow_starts_key"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("key", "seq", name=op.f("pk_workflow_starts")),
        sqlite_with_rowid=False,
    )
    op.execute(sa.text("UPDATE _meta SET value = '0024' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
