"""Problems that `persist doctor` may find: each domain and dialect names its own, maintenance gathers them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How bad it is: `error` loses or hides data, `warning` needs somebody's decision, `info` is good to know."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with `subject`. `repair`, in a write transaction of its own, mends it and deletes no data."""

    code: str
    severity: Severity
    subject: str
    message: str
    repair: Callable[[Any], object] | None = None
    """Takes the unit of work of that transaction."""
