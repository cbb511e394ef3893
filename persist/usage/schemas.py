"""Values of usage: calls of models, their sums, and budgets."""

from datetime import datetime
from enum import StrEnum
from typing import TypedDict

from persist.db.values.arguments import Amount
from persist.db.values.frozen import Value


class Bucket(StrEnum):
    """The length of time that a sum is of. Buckets begin at full hours and at midnight, in UTC."""

    HOUR = "hour"
    DAY = "day"


class Period(StrEnum):
    """How often a budget begins anew, in its time zone: weeks on Mondays, as those of ISO 8601; a total never does."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    TOTAL = "total"


class Source(StrEnum):
    """What a call belongs to, with its id: the part before the colon of `UsageCall.scope`."""

    INSTANCE = "instance"
    SESSION = "session"
    RUN = "run"


class Of(StrEnum):
    """What a budget may be on: the part before the colon of its key, or the value of a run's whole concurrency key."""

    OWNER = "owner"
    WORKSPACE = "workspace"
    WORKFLOW = "workflow"
    INSTANCE = "instance"
    AGENT = "agent"


class Group(StrEnum):
    """What sums of calls are kept apart by."""

    MODEL = "model"
    AGENT = "agent"
    OWNER = "owner"
    WORKSPACE = "workspace"
    WORKFLOW = "workflow"
    SCOPE = "scope"


class UsageCall(Value):
    """A call of a model, kept as long as the window of its scope.

    scope     `instance:ID`, `session:ID` or `run:ID`
    seq       counts the calls of the scope in the order in which they were written
    source    what it is counted once by, such as `step:MESSAGE:0` or `execution:ID`; None if nothing said
    agent, owner, workspace, workflow    empty if unknown
    token_*   by kind: input without what was read from or written to a cache, and reasoning as a part of output. None: unknown
    cost_usd_micros    millionths of a US dollar; None: unknown
    """

    scope: str
    seq: int
    source: str | None
    occurred_at: datetime
    provider: str | None
    model: str
    operation: str | None
    agent: str
    owner: str
    workspace: str
    workflow: str
    task_id: str | None
    run_id: str | None
    trace_id: str | None
    span_id: str | None
    token_input: int | None
    token_output: int | None
    token_cache_read: int | None
    token_cache_write: int | None
    token_reasoning: int | None
    cost_usd_micros: int | None
    duration_ms: int | None
    error: str | None


class UsageSum(Value):
    """Sums over calls. A count or cost that a call did not know counts as 0 in them, and as one of `unpriced` if it is the cost.

    starts_at   the beginning of the hour or day; None for a sum over the whole range that was asked for
    group       the model, agent, owner, workspace, workflow or scope that the sum is of; None for one over all of them
    """

    starts_at: datetime | None
    group: str | None
    calls: int
    errors: int
    unpriced: int
    token_input: int
    token_output: int
    token_cache_read: int
    token_cache_write: int
    token_reasoning: int
    cost_usd_micros: int
    duration_ms: int


class Budget(Value):
    """What a key may use in each period. None does not limit that."""

    key: str
    period: Period
    max_cost_usd_micros: int | None
    max_tokens: int | None
    """Input, output, and tokens read from and written to caches."""
    timezone: str
    updated_at: datetime


class BudgetStanding(Value):
    """A budget and its use in the current period.

    passed    the highest of 80 and 100 per cent that was reached, else 0. At 100 the budget is used up
    """

    budget: Budget
    starts_at: datetime
    ends_at: datetime
    cost_usd_micros: int
    tokens: int
    passed: int


class UsageFilters(TypedDict, total=False):
    """Sums are of the calls of the given model, agent and so on. "" stands for what is unknown, and None filters nothing."""

    model: str | None
    agent: str | None
    owner: str | None
    workspace: str | None
    workflow: str | None
    scope: str | None


class CallFields(TypedDict, total=False):
    """What is known of a model's call, beside its owner.

    Input tokens are without cached ones, and reasoning is a part of output. The cost is in US dollars, or in millionths of one
    (`cost_usd_micros`), the duration in milliseconds. By its `key` a call is recorded once, as long as the window keeps it.
    """

    provider: str | None
    operation: str | None
    agent: str | None
    owner: str | None
    workspace: str | None
    workflow: str | None
    task_id: str | None
    trace_id: str | None
    span_id: str | None
    token_input: int | None
    token_output: int | None
    token_cache_read: int | None
    token_cache_write: int | None
    token_reasoning: int | None
    cost_usd: Amount | None
    cost_usd_micros: int | None
    duration_ms: int | None
    error: str | None
    key: str | None
