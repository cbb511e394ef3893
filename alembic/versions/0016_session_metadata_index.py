"""An index on Postgres over the metadata of chat sessions, by which lists are filtered.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.create_index(
            "ix_chat_sessions_metadata",
            "chat_sessions",
            ["metadata_json"],
            postgresql_using="gin",
            postgresql_ops={"metadata_json": "jsonb_path_ops"},
        )
    op.execute(sa.text("UPDATE _meta SET value = '0016' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
