"""Shape checks of transcripts: the stored texts must be JSON."""

import json

from persist.db.schema.shapes import Shapes
from persist.transcripts.models import entries, transcripts


def _object(value: str) -> str | None:
    return _json(value) or (None if isinstance(json.loads(value), dict) else "no object")


def _json(value: str | None) -> str | None:
    try:
        return None if value is None else json.loads(value) and None
    except (ValueError, RecursionError):
        return "no JSON"


SHAPES: Shapes = {entries.c.entry: _object, transcripts.c.summary: _json}
