"""Usage: single calls of models, their sums by hour and day, and budgets with what is used of them.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def instant() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True, precision=3), "postgresql")


def optional(*names: str) -> list:
    return [sa.Column(name, label(), nullable=True) for name in names]


def dimensions(*names: str, default: str | None = None) -> list:
    server_default = None if default is None else sa.text(default)
    return [sa.Column(name, label(), nullable=False, server_default=server_default) for name in names]


def counts(*names: str) -> list:
    return [sa.Column(name, whole(), server_default=sa.text("0"), nullable=False) for name in names]


FIGURES = (
    "token_input",
    "token_output",
    "token_cache_read",
    "token_cache_write",
    "token_reasoning",
    "cost_usd_micros",
    "duration_ms",
)


def upgrade() -> None:
    op.create_table(
        "usage_calls",
        *dimensions("scope"),
        sa.Column("seq", whole(), nullable=False, autoincrement=False),
        *optional("source"),
        sa.Column("occurred_at", whole(), nullable=False),
        *optional("provider"),
        *dimensions("model"),
        *optional("operation"),
        *dimensions("agent", "owner", "workspace", "workflow", default="''"),
        *optional("task_id", "run_id", "trace_id", "span_id"),
        *[sa.Column(name, whole(), nullable=True) for name in FIGURES],
        *optional("error"),
        sa.PrimaryKeyConstraint("scope", "seq", name=op.f("pk_usage_calls")),
    )
    has_source = sa.text("source IS NOT NULL")
    op.create_index(
        "ix_usage_calls_source",
        "usage_calls",
        ["scope", "source"],
        unique=True,
        sqlite_where=has_source,
        postgresql_where=has_source,
    )
    op.create_table(
        "usage_rollups",
        *dimensions("group_key", "bucket"),
        sa.Column("starts_at", whole(), nullable=False, autoincrement=False),
        *dimensions("scope", "model", "agent", "owner", "workspace", "workflow"),
        *counts("calls", "errors", "unpriced", *FIGURES),
        sa.PrimaryKeyConstraint("group_key", "bucket", "starts_at", name=op.f("pk_usage_rollups")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_usage_rollups_bucket_starts_at", "usage_rollups", ["bucket", "starts_at"])
    op.create_index("ix_usage_rollups_scope_bucket_starts_at", "usage_rollups", ["scope", "bucket", "starts_at"])
    op.create_index("ix_usage_rollups_owner_bucket_starts_at", "usage_rollups", ["owner", "bucket", "starts_at"])
    op.create_table(
        "usage_budgets",
        *dimensions("key", "period"),
        sa.Column("max_cost_usd_micros", whole(), nullable=True),
        sa.Column("max_tokens", whole(), nullable=True),
        *dimensions("timezone"),
        sa.Column("updated_at", instant(), nullable=False),
        sa.PrimaryKeyConstraint("key", "period", name=op.f("pk_usage_budgets")),
    )
    op.create_table(
        "usage_spending",
        *dimensions("key", "period"),
        sa.Column("starts_at", whole(), nullable=False, autoincrement=False),
        sa.Column("ends_at", whole(), nullable=False),
        *counts("cost_usd_micros", "tokens", "passed"),
        sa.ForeignKeyConstraint(
            ["key", "period"],
            ["usage_budgets.key", "usage_budgets.period"],
            name=op.f("fk_usage_spending_key"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("key", "period", "starts_at", name=op.f("pk_usage_spending")),
        sqlite_with_rowid=False,
    )
    used_up = sa.text("passed = 100")
    op.create_index(
        "ix_usage_spending_used_up",
        "usage_spending",
        ["passed", "key", "ends_at"],
        sqlite_where=used_up,
        postgresql_where=used_up,
    )
    op.execute(sa.text("UPDATE _meta SET value = '0031' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
