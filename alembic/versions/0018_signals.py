"""Signals that runs are told, and the waits of runs for them.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0018"
down_revision = "0017"
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


def some(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def upgrade() -> None:
    of_run = "fk_{}_run_id"
    op.create_table(
        "workflow_signals",
        sa.Column("run_id", label(), nullable=False),
        sa.Column("seq", whole(), autoincrement=False, nullable=False),
        sa.Column("name", label(), nullable=False),
        sa.Column("timed_out", flag(), nullable=False),
        sa.Column("sent_at", instant(), nullable=False),
        sa.Column("taken_at", instant(), nullable=True),
        sa.Column("idempotency_key", label(), nullable=True),
        sa.Column("payload", json(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["workflow_runs.id"], name=op.f(of_run.format("workflow_signals")), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_workflow_signals")),
    )
    op.create_table(
        "workflow_waits",
        sa.Column("run_id", label(), nullable=False),
        sa.Column("name", label(), nullable=False),
        sa.Column("since", instant(), nullable=False),
        sa.Column("expires_at", instant(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name=op.f(of_run.format("workflow_waits")), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_workflow_waits")),
    )
    some("ix_workflow_signals_untaken", "workflow_signals", ["run_id", "name", "seq"], "taken_at IS NULL")
    some(
        "ix_workflow_signals_idempotency_key",
        "workflow_signals",
        ["run_id", "idempotency_key"],
        "idempotency_key IS NOT NULL",
        unique=True,
    )
    some("ix_workflow_waits_expiring", "workflow_waits", ["expires_at"], "expires_at IS NOT NULL")
    op.execute(sa.text("UPDATE _meta SET value = '0018' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
