"""Chat sessions have owners, a running turn can be asked to stop, and a claimed message knows who claimed it.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("chat_sessions", sa.Column("owner", label(), nullable=True))
    op.add_column("chat_messages", sa.Column("claimed_by", label(), nullable=True))
    op.add_column("chat_messages", sa.Column("claimed_at", whole(), nullable=True))
    op.add_column("chat_turns", sa.Column("stop_requested_at", whole(), nullable=True))
    op.create_index(
        "ix_chat_sessions_owner",
        "chat_sessions",
        ["owner", "updated_at", "id"],
        sqlite_where=sa.text("owner IS NOT NULL"),
        postgresql_where=sa.text("owner IS NOT NULL"),
    )
    op.create_index(
        "ix_chat_sessions_archived",
        "chat_sessions",
        ["updated_at", "id"],
        sqlite_where=sa.text("archived_at IS NOT NULL"),
        postgresql_where=sa.text("archived_at IS NOT NULL"),
    )
    op.create_index(
        "ix_chat_turns_stop_requested",
        "chat_turns",
        ["session_id"],
        sqlite_where=sa.text("stop_requested_at IS NOT NULL"),
        postgresql_where=sa.text("stop_requested_at IS NOT NULL"),
    )
    op.execute(sa.text("UPDATE _meta SET value = '0014' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
