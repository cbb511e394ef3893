"""What messages say of values, and of the names of things."""

from typing import Any

_SHOWN = 200
_LONGEST_NAME = 32_767  # what Windows takes, which takes the longest


def shown(value: Any, maximum: int = _SHOWN) -> str:
    """What a message says of a value that a caller gave: short, cut in the middle, and never a failure of its own."""
    if type(value) in (str, bytes) and len(value) > 2 * maximum:
        value = value[:maximum] + value[-maximum:]  # a repr of all of it would take as much again
    try:
        text = repr(value)
    except Exception:  # too deep, a number of too many digits, or a class that fails
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= maximum else f"{text[: maximum // 2]}…{text[-(maximum // 2) :]}"


def named(name: object) -> str:
    """What a message says of a path, URL or id: all of it, since one is told from another by its end."""
    return shown(name, _LONGEST_NAME)
