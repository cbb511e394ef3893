"""Positions of the event log from a sequence, so that logging transactions no longer wait for each other.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("event_heads", sa.Column("settled", whole(), nullable=True))
    if op.get_context().dialect.name == "postgresql":  # on SQLite the row of all streams counts
        op.execute(sa.text("CREATE SEQUENCE event_positions"))
    op.execute(sa.text("UPDATE _meta SET value = '0027' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
