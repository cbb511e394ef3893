"""Checkpoints: threads of graph runners, their states, values and writes; and memories across threads.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql, sqlite

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def json() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def amount() -> sa.types.TypeEngine:
    return sa.Double().with_variant(sqlite.REAL(), "sqlite")


def below_thread(name: str, *columns: sa.Column, key: list[str]) -> None:
    op.create_table(
        name,
        sa.Column("thread_id", label(), nullable=False),
        sa.Column("namespace", label(), nullable=False),
        *columns,
        sa.ForeignKeyConstraint(["thread_id"], ["checkpoint_threads.id"], name=op.f(f"fk_{name}_thread_id")),
        sa.PrimaryKeyConstraint("thread_id", "namespace", *key, name=op.f(f"pk_{name}")),
    )


def upgrade() -> None:
    op.create_table(
        "checkpoint_threads",
        sa.Column("id", label(), nullable=False),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("updated_at", whole(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoint_threads")),
    )
    op.create_index("ix_checkpoint_threads_updated_at_id", "checkpoint_threads", ["updated_at", "id"])
    below_thread(
        "checkpoint_states",
        sa.Column("id", label(), nullable=False),
        sa.Column("parent_id", label(), nullable=True),
        sa.Column("run_id", label(), nullable=True),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("metadata_json", json(), nullable=False),
        sa.Column("versions_json", json(), nullable=False),
        sa.Column("partial_json", json(), nullable=True),
        sa.Column("head_kind", label(), nullable=False),
        sa.Column("head", sa.LargeBinary(), nullable=False),
        key=["id"],
    )
    set_ = sa.text("run_id IS NOT NULL")
    op.create_index("ix_checkpoint_states_run_id", "checkpoint_states", ["run_id"], sqlite_where=set_, postgresql_where=set_)
    below_thread(
        "checkpoint_values",
        sa.Column("channel", label(), nullable=False),
        sa.Column("version", label(), nullable=False),
        sa.Column("kind", label(), nullable=True),
        sa.Column("spans_json", json(), nullable=True),
        sa.Column("digest", sa.LargeBinary(), nullable=True),
        sa.Column("data", sa.LargeBinary(), nullable=True),
        key=["channel", "version"],
    )
    below_thread(
        "checkpoint_pieces",
        sa.Column("channel", label(), nullable=False),
        sa.Column("position", whole(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("kind", label(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        key=["channel", "position"],
    )
    below_thread(
        "checkpoint_writes",
        sa.Column("checkpoint_id", label(), nullable=False),
        sa.Column("task_id", label(), nullable=False),
        sa.Column("idx", whole(), autoincrement=False, nullable=False),
        sa.Column("task_path", label(), nullable=False),
        sa.Column("channel", label(), nullable=False),
        sa.Column("kind", label(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        key=["checkpoint_id", "task_id", "idx"],
    )
    op.create_table(
        "memories",
        sa.Column("namespace", label(), nullable=False),
        sa.Column("key", label(), nullable=False),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("updated_at", whole(), nullable=False),
        sa.Column("expires_at", whole(), nullable=True),
        sa.Column("ttl_minutes", amount(), nullable=True),
        sa.Column("value_json", json(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "key", name=op.f("pk_memories")),
    )
    set_ = sa.text("expires_at IS NOT NULL")
    op.create_index("ix_memories_expires_at", "memories", ["expires_at"], sqlite_where=set_, postgresql_where=set_)
    op.create_table(
        "memory_vectors",
        sa.Column("namespace", label(), nullable=False),
        sa.Column("key", label(), nullable=False),
        sa.Column("path", label(), nullable=False),
        sa.Column("embedding", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["namespace", "key"],
            ["memories.namespace", "memories.key"],
            name=op.f("fk_memory_vectors_namespace"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("namespace", "key", "path", name=op.f("pk_memory_vectors")),
    )
    op.execute(sa.text("UPDATE _meta SET value = '0006' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
