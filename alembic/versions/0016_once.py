"""Idempotency keys of runs, executions and approvals, runs that are alone with their trigger, and side effects of runs.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"
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


def only(name: str, table: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=True, sqlite_where=condition, postgresql_where=condition)


def upgrade() -> None:
    op.add_column("workflow_runs", sa.Column("idempotency_key", label(), nullable=True))
    op.add_column("workflow_runs", sa.Column("unique_trigger_id", label(), nullable=True))
    op.add_column("executions", sa.Column("idempotency_key", label(), nullable=True))
    op.add_column("workflow_approvals", sa.Column("idempotency_key", label(), nullable=True))
    keyed = "idempotency_key IS NOT NULL"
    alone = "unique_trigger_id IS NOT NULL AND status IN ('queued', 'running', 'paused')"
    only("ix_workflow_runs_idempotency_key", "workflow_runs", ["workflow_name", "idempotency_key"], keyed)
    only("ix_workflow_runs_unique_trigger", "workflow_runs", ["workflow_name", "unique_trigger_id"], alone)
    only("ix_executions_idempotency_key", "executions", ["idempotency_key"], keyed)
    only("ix_workflow_approvals_idempotency_key", "workflow_approvals", ["workflow_run_id", "idempotency_key"], keyed)
    op.create_table(
        "workflow_effects",
        sa.Column("run_id", label(), nullable=False),
        sa.Column("key", label(), nullable=False),
        sa.Column("state", label(), nullable=False),
        sa.Column("attempts", whole(), nullable=False),
        sa.Column("input_digest", label(), nullable=False),
        sa.Column("begun_at", instant(), nullable=False),
        sa.Column("ended_at", instant(), nullable=True),
        sa.Column("error", label(), nullable=True),
        sa.Column("result", json(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name=op.f("fk_workflow_effects_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "key", name=op.f("pk_workflow_effects")),
    )
    op.execute(sa.text("UPDATE _meta SET value = '0016' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
