"""Computes the wait before a retry. Pure."""

import sys
from enum import StrEnum

from persist.db.values.arguments import check_amount, check_choice
from persist.errors import InvalidValue


class Backoff(StrEnum):
    """How the waits between attempts grow."""

    NONE = "none"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


def retry_delay(backoff: str | None, attempt: int, *, base: float = 1.0) -> float:
    """Seconds before retry number `attempt`, the first one being 1: none at all, `base` each time, or base · 1, 2, 4, 8 …"""
    kind = check_choice("backoff", Backoff.NONE if backoff is None else backoff, Backoff)
    if type(attempt) is not int or attempt < 1:
        raise InvalidValue("attempt", "expected a whole number, 1 or more.")
    base = check_amount("base", base)
    if kind is Backoff.NONE:
        return 0.0
    return base if kind is Backoff.LINEAR else min(base * 2.0 ** min(attempt - 1, 30), sys.float_info.max)
