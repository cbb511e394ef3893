"""Claims of tasks that expire, and the process that runs a program.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def instant() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True, precision=3), "postgresql")


def upgrade() -> None:
    op.add_column("tasks", sa.Column("claim_token", whole(), server_default="0", nullable=False))
    op.add_column("tasks", sa.Column("claim_expires_at", whole(), nullable=True))
    op.add_column("run", sa.Column("held_by", label(), nullable=True))
    op.add_column("run", sa.Column("held_since", instant(), nullable=True))
    op.add_column("run", sa.Column("seen_at", instant(), nullable=True))
    op.execute(sa.text("UPDATE _meta SET value = '0022' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
