"""What forks inherit is kept, sent messages and progressions say more, samples have an order, links are found by number.

`branches.former_of` marks branches that keep, for the forks of another one, what that one was. `exchange_items.sent_at` is what
retention goes by, `usage_samples.seq` the order in which samples were written.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def json() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def real() -> sa.types.TypeEngine:
    return sa.Double().with_variant(sa.REAL(), "sqlite")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("branches", sa.Column("former_of", label(), nullable=True))
    op.add_column("progressions", sa.Column("name", label(), nullable=True))
    op.add_column("progressions", sa.Column("node_metadata", json(), nullable=True))
    op.add_column("exchange_items", sa.Column("sent_at", real(), nullable=True))
    op.add_column("usage_samples", sa.Column("seq", whole(), server_default="0", nullable=False))
    op.create_index(
        "ix_usage_samples_instance_id_seq_occurred_at",
        "usage_samples",
        ["instance_id", "seq", "occurred_at"],
    )
    op.create_index(
        "ix_github_link_statuses_instance_id_resource_number",
        "github_link_statuses",
        ["instance_id", "resource_number"],
    )
    op.execute(sa.text("UPDATE _meta SET value = '0007' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
