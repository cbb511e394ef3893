"""Blobs, stored once under their digest, and the parts of chat messages that name them; an index over sessions' metadata.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def flag() -> sa.types.TypeEngine:
    return sa.Boolean().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("sha256", label(), nullable=False),
        sa.Column("media_type", label(), nullable=False),
        sa.Column("size", whole(), nullable=False),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("put_at", whole(), nullable=False),
        sa.Column("complete", flag(), nullable=False),
        sa.Column("named", flag(), nullable=False),
        sa.Column("outside", flag(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_blobs")),
    )
    op.create_index("ix_blobs_put_at_sha256", "blobs", ["put_at", "sha256"])
    op.create_table(
        "blob_pieces",
        sa.Column("sha256", label(), nullable=False),
        sa.Column("position", whole(), autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["sha256"], ["blobs.sha256"], name=op.f("fk_blob_pieces_sha256"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sha256", "position", name=op.f("pk_blob_pieces")),
    )
    op.create_table(
        "chat_part_blobs",
        sa.Column("part_id", label(), nullable=False),
        sa.Column("sha256", label(), nullable=False),
        sa.ForeignKeyConstraint(["part_id"], ["chat_parts.id"], name=op.f("fk_chat_part_blobs_part_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["sha256"], ["blobs.sha256"], name=op.f("fk_chat_part_blobs_sha256")),
        sa.PrimaryKeyConstraint("part_id", name=op.f("pk_chat_part_blobs")),
    )
    op.create_index("ix_chat_part_blobs_sha256", "chat_part_blobs", ["sha256"])
    if op.get_context().dialect.name == "postgresql":
        op.create_index(
            "ix_chat_sessions_metadata",
            "chat_sessions",
            ["metadata_json"],
            postgresql_using="gin",
            postgresql_ops={"metadata_json": "jsonb_path_ops"},
        )
    op.execute(sa.text("UPDATE _meta SET value = '0015' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
