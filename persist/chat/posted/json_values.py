"""JSON that went to a browser and back: equality as JavaScript sees it, and keys that would reach a prototype there."""

from typing import Any

from persist.chat.reducer.partial_json import reaches_prototype
from persist.db.values.escaping import has_half, join_halves
from persist.db.values.json import JsonText
from persist.errors import InvalidValue


def same(posted: Any, stored: Any) -> bool:
    """Whether a posted value is the stored one. A browser writes 1.0 as 1, and an integer from 2**53 on rounded."""
    kind = type(stored)
    if kind is str:
        return isinstance(posted, str) and (posted == stored or join_halves(posted) == stored)
    if kind is dict:
        if not isinstance(posted, dict) or posted.keys() != stored.keys():
            return False
        for key, value in stored.items():  # noqa: SIM110  # one frame a level: stored values may be nested deep
            if not same(posted[key], value):
                return False
        return True
    if kind is list:
        if not isinstance(posted, list) or len(posted) != len(stored):
            return False
        for one, value in zip(posted, stored, strict=True):  # noqa: SIM110  # as above
            if not same(one, value):
                return False
        return True
    if kind is int or kind is float:
        return type(posted) in (int, float) and (posted == stored or _as_float(posted) == float(stored))
    return posted is stored  # None, True, False


def _as_float(number: float) -> float | None:
    try:
        return float(number)
    except OverflowError:
        return None


def begins(posted: Any, stored: Any) -> bool:
    """Whether a posted text is the beginning of the stored one, which may end inside of a character."""
    if not isinstance(posted, str) or not isinstance(stored, str):
        return False
    if stored.startswith(posted):
        return True
    return has_half(posted) and _utf16(stored).startswith(_utf16(posted))


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def refuse_prototype(text: JsonText, value: Any, path: str) -> None:
    """Raise InvalidValue for a key by which JavaScript code would change the prototype of its objects. `text`: the JSON."""
    if ("__proto__" in text or "constructor" in text) and reaches_prototype(value):
        raise InvalidValue(path, "it has a key that would reach a JavaScript prototype.")
