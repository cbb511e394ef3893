"""Values of overrides: what an operator changed."""

from datetime import datetime

from persist.db.values.frozen import Value


class CronOverride(Value):
    """A row of cron_overrides: what an operator changed about a schedule."""

    name: str
    enabled: bool
    schedule: str | None
    updated_at: datetime
    updated_by: str | None


class WorkflowOverride(Value):
    """A row of workflow_overrides: a workflow's switch."""

    name: str
    enabled: bool
    updated_at: datetime
    updated_by: str | None
