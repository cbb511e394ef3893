"""Conversations: sessions, branches, messages and their types, progressions with members, status history, exchange.

Additive only: create tables, add columns (nullable, or with a server default), create indexes. Nothing is dropped,
renamed, narrowed or rebuilt, and code of the previous release must run on the result. Name no schema: env.py sets it.
Import only alembic and sqlalchemy. Once released, this file is never edited (tests keep its checksum).
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

INVOCATION_KINDS = "'agent', 'play', 'flow', 'fanout', 'show-play', 'engine'"
SOURCE_KINDS = "'live', 'imported_fs', 'imported_codex'"


def label() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def json() -> sa.types.TypeEngine:
    return sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def whole() -> sa.types.TypeEngine:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def real() -> sa.types.TypeEngine:
    return sa.Double().with_variant(sa.REAL(), "sqlite")


def flag() -> sa.types.TypeEngine:
    return sa.Boolean().with_variant(sa.Integer(), "sqlite")


def default(on: bool) -> sa.TextClause:
    """The default of a flag, in the words of the database."""
    postgres = op.get_context().dialect.name == "postgresql"
    return sa.text(str(on).lower() if postgres else str(int(on)))


def primary(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=op.f(f"pk_{table}"))


def foreign(table: str, column: str, target: str, ondelete: str | None = None) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [target], name=op.f(f"fk_{table}_{column}"), ondelete=ondelete)


def upgrade() -> None:
    types = op.create_table(
        "message_types",
        sa.Column("type_id", whole(), nullable=False, autoincrement=False),
        sa.Column("lion_class", label(), nullable=False),
        primary("message_types", "type_id"),
        sa.UniqueConstraint("lion_class", name=op.f("uq_message_types_lion_class")),
    )
    op.create_table(
        "messages",
        sa.Column("id", label(), nullable=False),
        sa.Column("created_at", real(), nullable=False),
        sa.Column("sender", label()),
        sa.Column("recipient", label()),
        sa.Column("channel", label()),
        sa.Column("role", label(), nullable=False),
        sa.Column("lion_class", whole(), server_default=sa.text("0"), nullable=False),
        sa.Column("stored_at", real()),
        sa.Column("node_metadata", json()),
        sa.Column("embedding", sa.LargeBinary()),
        sa.Column("content", json(), nullable=False),
        primary("messages", "id"),
        foreign("messages", "lion_class", "message_types.type_id"),
    )
    op.create_index("ix_messages_sender", "messages", ["sender"])
    op.create_index("ix_messages_recipient", "messages", ["recipient"])
    op.create_table(
        "progressions",
        sa.Column("id", label(), nullable=False),
        sa.Column("created_at", real(), nullable=False),
        sa.Column("folded", whole(), server_default=sa.text("0"), nullable=False),
        sa.Column("collection", json(), server_default="[]", nullable=False),
        primary("progressions", "id"),
    )
    op.create_table(
        "progression_members",
        sa.Column("progression_id", label(), nullable=False),
        sa.Column("ord", whole(), nullable=False, autoincrement=False),
        sa.Column("message_id", label(), nullable=False),
        primary("progression_members", "progression_id", "ord"),
        foreign("progression_members", "progression_id", "progressions.id", "CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_progression_members_message_id", "progression_members", ["message_id", "progression_id"])
    op.create_table(
        "sessions",
        sa.Column("id", label(), nullable=False),
        sa.Column("created_at", real(), nullable=False),
        sa.Column("name", label()),
        sa.Column("user", label()),
        sa.Column("progression_id", label(), nullable=False),
        sa.Column("first_msg_id", label()),
        sa.Column("last_msg_id", label()),
        sa.Column("updated_at", real(), nullable=False),
        sa.Column("last_message_at", real()),
        sa.Column("playbook_name", label()),
        sa.Column("agent_name", label()),
        sa.Column("invocation_kind", label()),
        sa.Column("show_topic", label()),
        sa.Column("show_play_name", label()),
        sa.Column("artifacts_path", label()),
        sa.Column("source_kind", label()),
        sa.Column("status", label()),
        sa.Column("status_reason_code", label()),
        sa.Column("started_at", real()),
        sa.Column("ended_at", real()),
        sa.Column("ended_at_is_approximate", flag(), server_default=default(False), nullable=False),
        sa.Column("status_reason_summary", label()),
        sa.Column("status_evidence_refs", json()),
        sa.Column("node_metadata", json()),
        primary("sessions", "id"),
        sa.CheckConstraint(f"invocation_kind IN ({INVOCATION_KINDS})", name=op.f("ck_sessions_invocation_kind")),
        sa.CheckConstraint(f"source_kind IN ({SOURCE_KINDS})", name=op.f("ck_sessions_source_kind")),
        foreign("sessions", "progression_id", "progressions.id"),
        foreign("sessions", "first_msg_id", "messages.id"),
        foreign("sessions", "last_msg_id", "messages.id"),
    )
    for pointer in ("progression_id", "first_msg_id", "last_msg_id"):
        op.create_index(f"ix_sessions_{pointer}", "sessions", [pointer])
    op.create_index("ix_sessions_updated_at_id", "sessions", ["updated_at", "id"])
    for column in ("status", "agent_name", "playbook_name", "invocation_kind", "source_kind", "show_topic"):
        op.create_index(f"ix_sessions_{column}_updated_at_id", "sessions", [column, "updated_at", "id"])
    op.create_table(
        "branches",
        sa.Column("id", label(), nullable=False),
        sa.Column("created_at", real(), nullable=False),
        sa.Column("name", label()),
        sa.Column("user", label()),
        sa.Column("session_id", label(), nullable=False),
        sa.Column("progression_id", label(), nullable=False),
        sa.Column("system_msg_id", label()),
        sa.Column("status", label()),
        sa.Column("started_at", real()),
        sa.Column("ended_at", real()),
        sa.Column("parent_branch_id", label()),
        sa.Column("forked_at_ord", whole()),
        sa.Column("node_metadata", json()),
        primary("branches", "id"),
        foreign("branches", "session_id", "sessions.id", "CASCADE"),
        foreign("branches", "progression_id", "progressions.id"),
        foreign("branches", "system_msg_id", "messages.id"),
    )
    op.create_index("ix_branches_session_id_created_at_id", "branches", ["session_id", "created_at", "id"])
    for pointer in ("progression_id", "system_msg_id", "parent_branch_id"):
        op.create_index(f"ix_branches_{pointer}", "branches", [pointer])
    op.create_table(
        "status_transitions",
        sa.Column("id", label(), nullable=False),
        sa.Column("entity_type", label(), nullable=False),
        sa.Column("entity_id", label(), nullable=False),
        sa.Column("previous_status", label()),
        sa.Column("status", label(), nullable=False),
        sa.Column("reason_code", label()),
        sa.Column("source", label(), nullable=False),
        sa.Column("actor", label()),
        sa.Column("created_at", real(), nullable=False),
        sa.Column("reason_summary", label()),
        sa.Column("evidence_refs", json()),
        sa.Column("metadata", json()),
        primary("status_transitions", "id"),
    )
    op.create_index(
        "ix_status_transitions_entity_type_entity_id_created_at_id",
        "status_transitions",
        ["entity_type", "entity_id", "created_at", "id"],
    )
    op.create_table(
        "exchange_items",
        sa.Column("seq", whole(), nullable=False, autoincrement=False),
        sa.Column("message_id", label(), nullable=False),
        sa.Column("sender", label(), nullable=False),
        sa.Column("recipient", label()),
        sa.Column("channel", label()),
        primary("exchange_items", "seq"),
        sa.UniqueConstraint("message_id", name=op.f("uq_exchange_items_message_id")),
        foreign("exchange_items", "message_id", "messages.id", "CASCADE"),
    )
    op.create_index("ix_exchange_items_recipient_seq", "exchange_items", ["recipient", "seq"])
    op.create_index("ix_exchange_items_sender_seq", "exchange_items", ["sender", "seq"])
    cursors = op.create_table(
        "exchange_cursors",
        sa.Column("owner", label(), nullable=False),
        sa.Column("channel", label(), nullable=False),
        sa.Column("seq", whole(), server_default=sa.text("0"), nullable=False),
        primary("exchange_cursors", "owner", "channel"),
    )
    known = "lionagi.protocols.messages"
    classes = (
        "__unknown__",
        f"{known}.system.System",
        f"{known}.instruction.Instruction",
        f"{known}.assistant_response.AssistantResponse",
        f"{known}.action_request.ActionRequest",
        f"{known}.action_response.ActionResponse",
    )
    op.bulk_insert(types, [{"type_id": number, "lion_class": path} for number, path in enumerate(classes)])
    # the row of nobody holds the last place that was given
    op.bulk_insert(cursors, [{"owner": "", "channel": "", "seq": 0}])
    # the mark that opening a database compares, beside Alembic's own
    op.execute("UPDATE _meta SET value = '0003' WHERE key = 'schema_version'")


def downgrade() -> None:
    raise RuntimeError("persist's schema only grows: restore a backup instead of downgrading")
