"""Validation of the JSON columns of workflows on reading."""

from persist.db.schema.shapes import Shapes, json_object, objects, optional
from persist.workflows.models import runs, schedules

SHAPES: Shapes = {
    runs.c.phase_history: objects,
    runs.c.context: optional(json_object),
    runs.c.scratch: optional(json_object),
    runs.c.node_statuses: optional(json_object),
    schedules.c.context: optional(json_object),
}
