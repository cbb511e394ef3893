"""Values of limits."""

from datetime import datetime, timedelta

from persist.db.values.frozen import Value

WORKFLOW_PREFIX = "workflow:"
"""What the key of a limit on all runs of a workflow begins with; the name of the workflow follows."""
ANY_WORKFLOW = ""
"""What idle workers are told in place of a workflow's name, where runs of any workflow may have become claimable."""


class Limit(Value):
    """A row of workflow_limits: how many runs of a workflow, or with one concurrency key, run at once and start in a period."""

    key: str
    concurrency: int | None
    """How many may run at once; None does not limit that."""
    rate: int | None
    """How many may start within `per`."""
    per: timedelta | None
    updated_at: datetime
