"""Shape checks of chat's JSON columns: what a stored value must be for readers to use it."""

from typing import Any

from persist.chat.models import parts
from persist.chat.reducer.parts import TEXT_TYPES
from persist.db.schema.shapes import Shapes


def _part(value: Any) -> str | None:
    """Why a stored value is not a part that readers and folds can use; None if it is one."""
    if not isinstance(value, dict):
        return "no object"
    kind = value.get("type")
    if not isinstance(kind, str):
        return "an object without a type"
    grows = "text" if kind in TEXT_TYPES else "rawInput"
    found = value.get(grows)
    fits = isinstance(found, str) or (found is None and (grows == "rawInput" or "text" not in value))
    return None if fits else f"a part whose {grows} is no text"


SHAPES: Shapes = {parts.c.data_json: _part}
