"""Waiting messages of a chat in the order of their queue, so that a claim reads one row; compactions, so that SQLite finds them.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped but an index
that another one replaces, and nothing is renamed, narrowed or rebuilt; code of the previous release must run on the result. Name
no schema: env.py sets it. Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

KIND_ON_SQLITE = "CASE WHEN json_valid(metadata_json) THEN json_type(metadata_json, '$.queued_at') END"
NUMBER_ON_SQLITE = (
    f"CASE WHEN {KIND_ON_SQLITE} IN ('integer', 'real') THEN json_extract(metadata_json, '$.queued_at') ELSE -9e999 END"
)
NUMBER_ON_POSTGRES = "(metadata_json -> 'queued_at')"


def upgrade() -> None:
    number = NUMBER_ON_POSTGRES if op.get_context().dialect.name == "postgresql" else NUMBER_ON_SQLITE
    op.create_index(
        "ix_chat_messages_in_line",
        "chat_messages",
        ["session_id", sa.text(number), "id"],
        sqlite_where=sa.text(
            "CASE WHEN json_valid(metadata_json) THEN json_extract(metadata_json, '$.queued_at') END IS NOT NULL"
        ),
        postgresql_where=sa.text("(metadata_json ->> 'queued_at') IS NOT NULL"),
    )
    op.drop_index("ix_chat_messages_queued", "chat_messages")
    compaction = sa.text("type = 'data-compaction'")
    op.create_index(
        "ix_chat_parts_compaction_of_session",
        "chat_parts",
        ["session_id", "type"],
        sqlite_where=compaction,
        postgresql_where=compaction,
    )
    op.drop_index("ix_chat_parts_compaction", "chat_parts")
    op.execute(sa.text("UPDATE _meta SET value = '0033' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
