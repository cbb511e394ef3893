"""The tables of usage. The key of a sum has a digest of its dimensions: as many labels would not fit an index."""

from datetime import datetime

from sqlalchemy import ForeignKeyConstraint, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from persist.db.changes.journal import Streams
from persist.db.schema.base import ONE_TREE, SCHEMA_TOKEN, Base, partial_index, predicate, table_of
from persist.db.schema.column_types import EnumText, EpochMs, FreeText, Int64, IsoMs, Label
from persist.usage.schemas import Bucket, Period

_EMPTY, _ZERO = text("''"), text("0")


class UsageCallRow(Base):
    """One call of a model. `source` is what it is counted once by."""

    __tablename__ = "usage_calls"
    scope: Mapped[str] = mapped_column(Label(), primary_key=True)
    seq: Mapped[int] = mapped_column(Int64(), primary_key=True, autoincrement=False)
    source: Mapped[str | None] = mapped_column(Label())
    occurred_at: Mapped[datetime] = mapped_column(EpochMs())
    provider: Mapped[str | None] = mapped_column(Label())
    model: Mapped[str] = mapped_column(Label())
    operation: Mapped[str | None] = mapped_column(Label())
    agent: Mapped[str] = mapped_column(Label(), server_default=_EMPTY)
    owner: Mapped[str] = mapped_column(Label(), server_default=_EMPTY)
    workspace: Mapped[str] = mapped_column(Label(), server_default=_EMPTY)
    workflow: Mapped[str] = mapped_column(Label(), server_default=_EMPTY)
    task_id: Mapped[str | None] = mapped_column(Label())
    run_id: Mapped[str | None] = mapped_column(Label())
    trace_id: Mapped[str | None] = mapped_column(Label())
    span_id: Mapped[str | None] = mapped_column(Label())
    token_input: Mapped[int | None] = mapped_column(Int64())
    token_output: Mapped[int | None] = mapped_column(Int64())
    token_cache_read: Mapped[int | None] = mapped_column(Int64())
    token_cache_write: Mapped[int | None] = mapped_column(Int64())
    token_reasoning: Mapped[int | None] = mapped_column(Int64())
    cost_usd_micros: Mapped[int | None] = mapped_column(Int64())
    duration_ms: Mapped[int | None] = mapped_column(Int64())
    error: Mapped[str | None] = mapped_column(FreeText())


class UsageRollupRow(Base):
    """The sums of all calls of one hour or day that have the same dimensions. `group_key` is the digest of these."""

    __tablename__ = "usage_rollups"
    group_key: Mapped[str] = mapped_column(Label(), primary_key=True)
    bucket: Mapped[Bucket] = mapped_column(EnumText(Bucket), primary_key=True)
    starts_at: Mapped[datetime] = mapped_column(EpochMs(), primary_key=True, autoincrement=False)
    scope: Mapped[str] = mapped_column(Label())
    model: Mapped[str] = mapped_column(Label())
    agent: Mapped[str] = mapped_column(Label())
    owner: Mapped[str] = mapped_column(Label())
    workspace: Mapped[str] = mapped_column(Label())
    workflow: Mapped[str] = mapped_column(Label())
    calls: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    errors: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    unpriced: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    token_input: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    token_output: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    token_cache_read: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    token_cache_write: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    token_reasoning: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    cost_usd_micros: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    duration_ms: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)

    __table_args__ = (
        Index("ix_usage_rollups_bucket_starts_at", "bucket", "starts_at"),
        Index("ix_usage_rollups_scope_bucket_starts_at", "scope", "bucket", "starts_at"),
        Index("ix_usage_rollups_owner_bucket_starts_at", "owner", "bucket", "starts_at"),
        ONE_TREE,
    )


class UsageBudgetRow(Base):
    """What a key may use in each period."""

    __tablename__ = "usage_budgets"
    key: Mapped[str] = mapped_column(Label(), primary_key=True)
    period: Mapped[Period] = mapped_column(EnumText(Period), primary_key=True)
    max_cost_usd_micros: Mapped[int | None] = mapped_column(Int64())
    max_tokens: Mapped[int | None] = mapped_column(Int64())
    timezone: Mapped[str] = mapped_column(Label())
    updated_at: Mapped[datetime] = mapped_column(IsoMs())


class UsageSpendingRow(Base):
    """What is used of a budget in one period. `passed`: 0, 80 or 100 per cent of it."""

    __tablename__ = "usage_spending"
    key: Mapped[str] = mapped_column(Label(), primary_key=True)
    period: Mapped[Period] = mapped_column(EnumText(Period), primary_key=True)
    starts_at: Mapped[datetime] = mapped_column(EpochMs(), primary_key=True, autoincrement=False)
    ends_at: Mapped[datetime] = mapped_column(EpochMs())
    cost_usd_micros: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    tokens: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)
    passed: Mapped[int] = mapped_column(Int64(), server_default=_ZERO)

    __table_args__ = (
        ForeignKeyConstraint(
            ["key", "period"], [f"{SCHEMA_TOKEN}.usage_budgets.key", f"{SCHEMA_TOKEN}.usage_budgets.period"], ondelete="CASCADE"
        ),
        ONE_TREE,
    )


calls = table_of(UsageCallRow)
rollups = table_of(UsageRollupRow)
budgets = table_of(UsageBudgetRow)
spending = table_of(UsageSpendingRow)

HAS_SOURCE = predicate("source IS NOT NULL")
IS_USED_UP = predicate("passed = 100")
partial_index("ix_usage_calls_source", calls.c.scope, calls.c.source, where=HAS_SOURCE, unique=True)
# `passed` too, so that SQLite finds in the index alone whether any budget is used up
partial_index("ix_usage_spending_used_up", spending.c.passed, spending.c.key, spending.c.ends_at, where=IS_USED_UP)

_STREAMS = Streams("usage", shared="usage")
_STREAMS.by("scope", calls, rollups)
_STREAMS.always_shared(budgets, spending)
