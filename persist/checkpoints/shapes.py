"""Shape checks of checkpoints' JSON columns and vectors: what a stored value must be for readers to use it."""

from typing import Any

from persist.checkpoints.models import memories, states, values, vectors
from persist.db.schema.shapes import Shapes, floats32, json_object, optional, texts, texts_by_name


def _spans(value: Any) -> str | None:
    fits = isinstance(value, list) and all(isinstance(span, list) and [type(end) for end in span] == [int, int] for span in value)
    return None if fits else "no list of ranges"


SHAPES: Shapes = {
    states.c.versions_json: texts_by_name,
    states.c.partial_json: optional(texts),
    values.c.spans_json: optional(_spans),
    memories.c.value_json: json_object,
    vectors.c.embedding: floats32,
}
