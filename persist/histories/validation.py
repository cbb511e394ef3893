"""Checks of a framework's arguments, made before anything is written."""

from persist.errors import InvalidValue

_MAX = 2**63 - 1


def whole_number(path: str, value: object, *, minimum: int = -_MAX - 1) -> int:
    """The number. Raises InvalidValue unless it is a whole one from `minimum` on that fits 64 bits."""
    if type(value) is not int or not minimum <= value <= _MAX:
        raise InvalidValue(path, f"expected a whole number from {minimum} on that fits 64 bits.")
    return value


def text(path: str, value: object) -> str:
    """The text, of any content. Raises InvalidValue for anything else."""
    if not isinstance(value, str):
        raise InvalidValue(path, f"expected text, got {type(value).__name__}.")
    return value


def optional_text(path: str, value: object) -> str | None:
    """The text, of any content, or None. Raises InvalidValue for anything else."""
    return None if value is None else text(path, value)
