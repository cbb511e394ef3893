"""Subagents that are not trusted: who has a token, and whose file is to be taken in.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def second() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True, precision=3), "postgresql")


def json() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    on_sqlite = op.get_context().dialect.name == "sqlite"
    scope = "''" if on_sqlite else "NULLIF(current_setting('persist.run_id', true), '')"
    op.create_table(
        "program_subagents",
        sa.Column("id", label(), nullable=False),
        sa.Column("run_id", label(), nullable=False, server_default=sa.text(scope)),
        sa.Column("execution_id", whole(), nullable=True),
        sa.Column("isolation", label(), nullable=False),
        sa.Column("agent_name", label(), nullable=True),
        sa.Column("token_hash", label(), nullable=True),
        sa.Column("created_at", second(), nullable=False),
        sa.Column("expires_at", second(), nullable=True),
        sa.Column("ended_at", second(), nullable=True),
        sa.Column("lent", json(), nullable=True),
        sa.Column("report", json(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_program_subagents")),
    )
    op.create_index("ix_program_subagents_run_id_execution_id", "program_subagents", ["run_id", "execution_id"])
    op.create_index("uq_program_subagents_token_hash", "program_subagents", ["token_hash"], unique=True)
    op.execute(sa.text("UPDATE _meta SET value = '0029' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
