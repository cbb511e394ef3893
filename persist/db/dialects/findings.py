"""Problems that `persist doctor` can report; each domain and dialect defines its own, persist.maintenance collects them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """The severity of a problem: `error` loses or hides data, `warning` needs a decision, `info` is for information."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with `subject`. `repair` fixes it in a separate write transaction and deletes no data."""

    code: str
    severity: Severity
    subject: str
    message: str
    repair: Callable[[Any], object] | None = None
    """A function that takes the unit of work of that transaction."""
