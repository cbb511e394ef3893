"""Messages of chat platforms that are stored once, however often they are delivered.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("messaging_messages", sa.Column("unique_message_id", label(), nullable=True))
    keyed = sa.text("unique_message_id IS NOT NULL")
    op.create_index(
        "ix_messaging_messages_delivered_once",
        "messaging_messages",
        ["session_id", "role", "unique_message_id"],
        unique=True,
        sqlite_where=keyed,
        postgresql_where=keyed,
    )
    op.execute(sa.text("UPDATE _meta SET value = '0020' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
