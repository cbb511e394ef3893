"""Erasing telemetry: all that an instance which has the id of a session reported."""

from persist.db.operations.erasing import SESSION, Erasable, ErasableRows, holding
from persist.db.operations.erasing_ways import equal
from persist.telemetry.models import agent_tags, links, status_log, tool_history, usage_samples, window_marks

_OTHERS = (agent_tags, links, usage_samples, tool_history, window_marks)

ERASABLES: tuple[Erasable, ...] = (
    ErasableRows(
        status_log,
        ("instance_id",),
        {SESSION: equal(status_log.c.instance_id)},
        [holding(table, "instance_id") for table in _OTHERS],
    ),
)
