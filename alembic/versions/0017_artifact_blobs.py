"""Blobs that versions of artifacts name.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    artifact = op.f("fk_app_artifact_blobs_artifact_id")
    op.create_table(
        "app_artifact_blobs",
        sa.Column("artifact_id", label(), nullable=False),
        sa.Column("version", whole(), autoincrement=False, nullable=False),
        sa.Column("sha256", label(), nullable=False),
        sa.ForeignKeyConstraint(["artifact_id"], ["app_artifacts.id"], name=artifact, ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["sha256"], ["blobs.sha256"], name=op.f("fk_app_artifact_blobs_sha256")),
        sa.PrimaryKeyConstraint("artifact_id", "version", name=op.f("pk_app_artifact_blobs")),
    )
    op.create_index("ix_app_artifact_blobs_sha256", "app_artifact_blobs", ["sha256"])
    op.execute(sa.text("UPDATE _meta SET value = '0017' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
