"""Runs that were created for another run, runs that wait for their children, and gates that expire.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def instant() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True, precision=3), "postgresql")


def partial(name: str, table: str, columns: list, where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)


def upgrade() -> None:
    op.add_column("workflow_runs", sa.Column("parent_run_id", label(), nullable=True))
    op.add_column("workflow_runs", sa.Column("join_until", label(), nullable=True))
    op.add_column("workflow_approvals", sa.Column("expires_at", instant(), nullable=True))
    op.add_column("workflow_approvals", sa.Column("on_expiry", label(), nullable=True))
    newest = ["parent_run_id", sa.text("started_at DESC"), sa.text("id DESC")]
    partial("ix_workflow_runs_parent_run_id_newest", "workflow_runs", newest, "parent_run_id IS NOT NULL")
    unfinished = "parent_run_id IS NOT NULL AND status IN ('queued', 'running', 'paused')"
    partial("ix_workflow_runs_unfinished_children", "workflow_runs", ["parent_run_id"], unfinished)
    expiring = "status = 'pending' AND expires_at IS NOT NULL"
    partial("ix_workflow_approvals_expiring", "workflow_approvals", ["expires_at", "id"], expiring)
    op.execute(sa.text("UPDATE _meta SET value = '0023' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
