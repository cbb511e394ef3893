"""Messages are found by what delivered them: a queue that is told of a delivery again reads no other message.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

LITE = "CASE WHEN json_valid(metadata_json) THEN json_extract(metadata_json, '$.{}') END"


def upgrade() -> None:
    # the first characters alone: an index of a server takes no longer text
    delivery = "left(metadata_json #>> '{trigger,delivery_id}', 200)"
    if op.get_context().dialect.name == "sqlite":
        delivery = f"substr({LITE.format('trigger.delivery_id')}, 1, 200)"
    op.create_index(
        "ix_chat_messages_delivery",
        "chat_messages",
        ["session_id", sa.text(delivery)],
        sqlite_where=sa.text(f"{LITE.format('trigger')} IS NOT NULL"),
        postgresql_where=sa.text("(metadata_json ->> 'trigger') IS NOT NULL"),
    )
    op.execute(sa.text("UPDATE _meta SET value = '0009' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
