"""One word for why an attempt was repeated, and the database's code, from whatever was raised."""

import sqlite3
from typing import Any

from persist.db.dialects.errors import Errors
from persist.errors import EventLogSwitched, StoreBusy, Unavailable
from tests.cases import each


class RefusedError(Exception):
    """A driver's error with an SQLSTATE."""

    def __init__(self, sqlstate: str) -> None:
        self.sqlstate = sqlstate


def caused(error: Exception, by: Any) -> Exception:
    error.__cause__ = by
    return error


ERRORS = Errors("here", lambda error: None, lambda error: True)
ITSELF = Unavailable("gone")
ITSELF.__cause__ = ITSELF


@each(
    ("error", "cause", "code"),
    [
        (caused(StoreBusy(0.0), RefusedError("40001")), "serialization", "40001"),
        (caused(StoreBusy(0.0), caused(ValueError(), RefusedError("40P01"))), "deadlock", "40P01"),
        (caused(StoreBusy(5.0), RefusedError("55P03")), "lock", "55P03"),
        (StoreBusy(1.0), "lock", None),
        (ITSELF, "connection", None),
        (EventLogSwitched(), "event_log_switched", None),
        (sqlite3.OperationalError("x"), "lock", None),
    ],
    ids=["serialization", "deadlock", "lock timeout", "busy", "its own cause", "switched", "driver"],
)
def test_causes_and_codes(error: Exception, cause: str, code: str | None) -> None:
    assert ERRORS.retry_cause(error) == cause
    assert ERRORS.code_of(error) == code
