"""Values and vocabularies of telemetry, with the fields of jackin's storage (docs/designs.md), instants in whole seconds."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from persist.db.values.frozen import Value


class AgentStatus(StrEnum):
    """The known statuses. The status log accepts any other word too."""

    INITIALIZING = "initializing"
    IDLE = "idle"
    BUSY = "busy"
    QUESTION = "question"
    CRASHED = "crashed"
    OOM_KILLED = "oom_killed"


class TagKind(StrEnum):
    """The kind of object that an agent's tag names."""

    REPO = "repo"
    ISSUE = "issue"
    PR = "pr"
    LINK = "link"


class LinkKind(StrEnum):
    """The kind of object that a GitHub link points to."""

    ISSUE = "issue"
    PR = "pr"


class TaskState(StrEnum):
    """The state of a task in the queue. A failed one waits for `retry`."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StatusEntry(Value):
    """A row of status_log: one transition."""

    id: int
    instance_id: str
    occurred_at: datetime
    new_status: str
    metadata: Any
    is_oldest: bool
    """Whether it is the oldest entry kept. What came before it is unknown."""


class AgentTag(Value):
    """A row of agent_tags: something an agent said it works on, and when it first and last said so."""

    instance_id: str
    kind: TagKind
    value: str
    first_seen: datetime
    last_seen: datetime


class GithubLink(Value):
    """A row of github_link_statuses: a link's states as last fetched, and when to fetch it again."""

    instance_id: str
    url: str
    kind: LinkKind
    host: str
    owner: str
    repo: str
    resource_number: int
    issue_state: str | None
    pr_state: str | None
    build_state: str | None
    review_state: str | None
    pr_is_draft: bool | None
    fetched_at: datetime
    refresh_after: datetime
    last_error: str | None


class UsageSample(Value):
    """A row of usage_samples: usage in one second. None means unknown, not zero. Cost is in millionths of a US dollar."""

    instance_id: str
    occurred_at: datetime
    token_input: int | None
    token_output: int | None
    token_cache_read: int | None
    token_cache_write: int | None
    cost_usd_micros: int | None


class UsageTotals(Value):
    """Sums over the samples still in the window. None if no sample has the figure. Cost is in millionths of a US dollar."""

    samples: int
    token_input: int | None
    token_output: int | None
    token_cache_read: int | None
    token_cache_write: int | None
    cost_usd_micros: int | None


class ToolCall(Value):
    """A row of tool_history."""

    id: int
    instance_id: str
    occurred_at: datetime
    tool_key: str
    exit_code: int | None
    duration_ms: int | None


class Task(Value):
    """A row of tasks: something to do in a workspace. `instance_name` is the instance that claimed it.

    claim_token       the number of its latest claim, which `renew`, `complete` and `fail` take; a later claim's is greater
    claim_expires_at  when other instances may claim it (milliseconds are kept); None: never, or it is not in progress
    """

    id: str
    workspace_id: str
    source_id: str
    kind: str
    title: str
    state: TaskState
    instance_name: str | None
    discovered_at: datetime
    claimed_at: datetime | None
    claim_token: int
    claim_expires_at: datetime | None
    completed_at: datetime | None
    outcome: str | None
    labels: Any
    links: Any
    body: str | None
