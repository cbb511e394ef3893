"""Shape checks of histories' JSON columns: what a stored value must be for readers to use it."""

from persist.db.schema.shapes import Shapes, json_object, optional, texts
from persist.histories.models import histories, run_events, runs

SHAPES: Shapes = {
    histories.c.usage_json: json_object,
    runs.c.metadata_json: json_object,
    runs.c.newest_keys_json: optional(texts),
    run_events.c.metadata_json: json_object,
}
