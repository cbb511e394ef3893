"""The log of events: its rows, and the last number given in each stream.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def json() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def flag() -> sa.types.TypeEngine:
    return sa.Boolean().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    on = sa.text("1" if op.get_context().dialect.name == "sqlite" else "true")
    op.create_table(
        "event_log",
        sa.Column("position", whole(), autoincrement=False, nullable=False),
        sa.Column("stream_id", label(), nullable=False),
        sa.Column("seq", whole(), nullable=False),
        sa.Column("type", label(), nullable=False),
        sa.Column("at", whole(), nullable=False),
        sa.Column("data", json(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_event_log")),
        sa.UniqueConstraint("stream_id", "seq", name=op.f("uq_event_log_stream_id_seq")),
    )
    op.create_table(
        "event_heads",
        sa.Column("stream_id", label(), nullable=False),
        sa.Column("seq", whole(), nullable=False),
        sa.Column("first_seq", whole(), server_default="1", nullable=False),
        sa.Column("logging", flag(), server_default=on, nullable=False),
        sa.PrimaryKeyConstraint("stream_id", name=op.f("pk_event_heads")),
        sqlite_with_rowid=False,
    )
    op.execute(sa.text("UPDATE _meta SET value = '0005' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
