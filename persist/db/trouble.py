"""What a look at a database may find wrong: named by whoever knows the rule, gathered by maintenance."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from persist.db.work import Work


class Severity(StrEnum):
    """How bad it is: `error` loses or hides data, `warning` needs somebody's decision, `info` is good to know."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong with `subject`. `repair`, in a write transaction of its own, mends it and deletes no data."""

    code: str
    severity: Severity
    subject: str
    message: str
    repair: "Callable[[Work], object] | None" = None
