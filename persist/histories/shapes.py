"""Shape checks of histories' JSON columns: what a stored value must be for readers to use it."""

from persist.db.schema.shapes import Shapes, any_value, json_object, optional, texts
from persist.histories.models import entries, histories, run_events, runs

SHAPES: Shapes = {
    histories.c.usage_json: json_object,
    histories.c.deferred_json: any_value,
    entries.c.message_json: any_value,
    entries.c.extra_json: any_value,
    runs.c.metadata_json: json_object,
    runs.c.newest_keys_json: optional(texts),
    run_events.c.metadata_json: json_object,
}
