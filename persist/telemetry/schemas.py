"""Values and vocabularies of telemetry. Shapes: the jackin' storage document; instants have whole seconds."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from persist.db.values import Value


class AgentStatus(StrEnum):
    """The statuses that are known; the log takes any other word too."""

    INITIALIZING = "initializing"
    IDLE = "idle"
    BUSY = "busy"
    QUESTION = "question"
    CRASHED = "crashed"
    OOM_KILLED = "oom_killed"


class TagKind(StrEnum):
    """What an agent's tag names."""

    REPO = "repo"
    ISSUE = "issue"
    PR = "pr"
    LINK = "link"


class LinkKind(StrEnum):
    """What a GitHub link points at."""

    ISSUE = "issue"
    PR = "pr"


class TaskState(StrEnum):
    """Where a task of the queue is. A failed one waits for `retry`."""

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
    """Whether it is the oldest entry that is kept: what came before it is not known."""


class AgentTag(Value):
    """A row of agent_tags: something an agent said it works on, and when it said so first and last."""

    instance_id: str
    kind: TagKind
    value: str
    first_seen: datetime
    last_seen: datetime


class GithubLink(Value):
    """A row of github_link_statuses: what is known of a link, and when to look again."""

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
    """A row of usage_samples: what one second used. None means unknown, which is not zero."""

    instance_id: str
    occurred_at: datetime
    token_input: int | None
    token_output: int | None
    token_cache_read: int | None
    token_cache_write: int | None
    cost_usd_micros: int | None


class UsageTotals(Value):
    """Sums over samples; None where no sample knew the figure. The window bounds what a lifetime can show."""

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
    """A row of tasks: something to do in a workspace, perhaps claimed by an instance."""

    id: str
    workspace_id: str
    source_id: str
    kind: str
    title: str
    state: TaskState
    instance_name: str | None
    discovered_at: datetime
    claimed_at: datetime | None
    completed_at: datetime | None
    outcome: str | None
    labels: Any
    links: Any
    body: str | None
