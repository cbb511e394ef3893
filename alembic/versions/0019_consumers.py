"""Consumers of the event log: how far each has acknowledged, and what is handed out to it.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def json() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "event_consumers",
        sa.Column("name", label(), nullable=False),
        sa.Column("position", whole(), nullable=False),
        sa.Column("lease_token", whole(), server_default="0", nullable=False),
        sa.Column("lease_position", whole(), nullable=True),
        sa.Column("lease_expires_at", whole(), nullable=True),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("acknowledged_at", whole(), nullable=True),
        sa.Column("types_json", json(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_event_consumers")),
    )
    op.execute(sa.text("UPDATE _meta SET value = '0019' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
