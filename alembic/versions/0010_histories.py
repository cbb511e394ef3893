"""Histories: conversations as logs of messages that are stored once, and runs of agents with their steps.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql, sqlite

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def json() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def seconds() -> sa.types.TypeEngine:
    return sa.Double().with_variant(sqlite.REAL(), "sqlite")


def text(name: str, *, nullable: bool = True) -> sa.Column:
    return sa.Column(name, label(), nullable=nullable)


def place() -> sa.Column:
    return sa.Column("position", whole(), autoincrement=False, nullable=False)


def index(table: str, *columns: str, where: str | None = None, unique: bool = False) -> None:
    rule = None if where is None else sa.text(f"{where} IS NOT NULL")
    name = f"ix_{table}_{'_'.join(columns)}"
    op.create_index(name, table, list(columns), unique=unique, sqlite_where=rule, postgresql_where=rule)


def below(name: str, parent: str, owner: str, *columns: sa.Column, key: str) -> None:
    op.create_table(
        name,
        text(owner, nullable=False),
        *columns,
        sa.ForeignKeyConstraint([owner], [f"{parent}.id"], name=op.f(f"fk_{name}_{owner}")),
        sa.PrimaryKeyConstraint(owner, key, name=op.f(f"pk_{name}")),
    )


def upgrade() -> None:
    op.create_table(
        "history_records",
        text("id", nullable=False),
        text("head_id"),
        text("scope"),
        text("forked_from"),
        text("forked_at"),
        text("revision", nullable=False),
        sa.Column("format_version", whole(), nullable=False),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("updated_at", seconds(), nullable=False),
        sa.Column("usage_json", json(), nullable=False),
        sa.Column("deferred_json", json(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_history_records")),
    )
    index("history_records", "updated_at", "id")
    index("history_records", "head_id", where="head_id")
    index("history_records", "scope", "updated_at", "id", where="scope")
    below("history_branches", "history_records", "history_id", place(), text("entry_id", nullable=False), key="position")
    index("history_branches", "entry_id")
    op.create_table(
        "history_entries",
        text("id", nullable=False),
        text("parent_id"),
        text("root_id", nullable=False),
        text("line_id", nullable=False),
        sa.Column("depth", whole(), nullable=False),
        text("kind", nullable=False),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=True),
        sa.Column("extra_json", json(), nullable=True),
        sa.Column("message_json", json(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_history_entries")),
    )
    index("history_entries", "root_id", "line_id", "depth", unique=True)
    op.create_table(
        "history_runs",
        text("id", nullable=False),
        text("conversation_id"),
        text("parent_id"),
        text("agent_name"),
        text("registration_id"),
        sa.Column("started_at", seconds(), nullable=True),
        sa.Column("created_at", whole(), nullable=False),
        sa.Column("updated_at", whole(), nullable=False),
        sa.Column("newest_sequence", whole(), nullable=True),
        sa.Column("newest_keys_json", json(), nullable=True),
        sa.Column("metadata_json", json(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_history_runs")),
    )
    index("history_runs", "updated_at", "id")
    index("history_runs", "conversation_id", where="conversation_id")
    index("history_runs", "parent_id", where="parent_id")
    below(
        "history_run_events",
        "history_runs",
        "run_id",
        place(),
        text("kind", nullable=False),
        sa.Column("step_index", whole(), nullable=False),
        sa.Column("at", seconds(), nullable=False),
        text("conversation_id"),
        text("parent_run_id"),
        text("agent_name"),
        text("tool_call_id"),
        text("tool_name"),
        text("idempotency_key"),
        text("error"),
        sa.Column("metadata_json", json(), nullable=False),
        key="position",
    )
    index("history_run_events", "run_id", "idempotency_key", unique=True)
    below(
        "history_snapshots",
        "history_runs",
        "run_id",
        place(),
        text("state", nullable=False),
        sa.Column("step_index", whole(), nullable=False),
        sa.Column("taken_at", seconds(), nullable=False),
        text("conversation_id"),
        text("parent_run_id"),
        text("agent_name"),
        text("idempotency_key"),
        text("head_id"),
        key="position",
    )
    index("history_snapshots", "run_id", "idempotency_key", unique=True)
    index("history_snapshots", "head_id", where="head_id")
    below(
        "history_tool_effects",
        "history_runs",
        "run_id",
        text("tool_call_id", nullable=False),
        sa.Column("position", whole(), nullable=False),
        text("tool_name", nullable=False),
        text("status", nullable=False),
        sa.Column("started_at", seconds(), nullable=False),
        sa.Column("ended_at", seconds(), nullable=True),
        text("idempotency_key"),
        text("effect_summary"),
        key="tool_call_id",
    )
    op.execute(sa.text("UPDATE _meta SET value = '0010' WHERE key = 'schema_version'"))


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
