"""Quarantine: rows that could not be read, moved here whole, with what hung on them.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "quarantine",
        sa.Column("id", label(), nullable=False),
        sa.Column("group_id", label(), nullable=False),
        sa.Column("position", whole(), nullable=False),
        sa.Column("table_name", label(), nullable=False),
        sa.Column("moved_at", whole(), nullable=False),
        sa.Column("row_key", label(), nullable=False),
        sa.Column("cause", label(), nullable=False),
        sa.Column("contents", label(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quarantine")),
        sa.UniqueConstraint("group_id", "position", name=op.f("uq_quarantine_group_id_position")),
    )
    op.execute(sa.text("UPDATE _meta SET value = '0008' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
