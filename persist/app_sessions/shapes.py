"""Shape checks of the texts of application sessions: what a stored value must be for readers to use it."""

import json

from persist.app_sessions.models import app_state, artifact_versions, events, memories, session_state, user_state
from persist.db.schema.shapes import Shapes


def _json_text(value: str) -> str | None:
    """JSON, of which Python's own decoder also reads NaN."""
    try:
        json.loads(value)
    except (ValueError, TypeError, RecursionError):
        return "no JSON"
    return None


_TEXTS = (events.c.data, session_state.c.value, app_state.c.value, user_state.c.value, memories.c.entry)
_OF_ARTIFACTS = (artifact_versions.c.metadata_text, artifact_versions.c.part)

SHAPES: Shapes = dict.fromkeys((*_TEXTS, *_OF_ARTIFACTS), _json_text)
