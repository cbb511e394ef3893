"""Values and vocabularies of schedules."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from persist.db.values.frozen import Value


class CatchUp(StrEnum):
    """What a schedule queues for fires that nobody asked for in time: a run for the last one, one for each, or none."""

    ONE = "one"
    ALL = "all"
    NONE = "none"


class Schedule(Value):
    """A row of workflow_schedules: when runs of a workflow are queued."""

    name: str
    workflow_name: str
    cron: str
    timezone: str
    next_fire_at: datetime | None
    """None if it never fires again."""
    last_fire_at: datetime | None
    fires_by: str
    """The expression that `next_fire_at` follows: `cron`, or that of an override."""
    enabled: bool
    catch_up: CatchUp
    updated_at: datetime
    context: dict[str, Any] | None
