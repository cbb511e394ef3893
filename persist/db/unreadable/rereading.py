"""How unreadable rows are read again: what the caller wants done with them, and what the dialect must do for its driver."""

from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, Protocol

from persist.db.unreadable.cells import OnUnreadable
from persist.db.unreadable.missing import Carried

By = tuple[OnUnreadable | None, Carried | None]
"""`unreadable` and `carried` of `Cells.rows`: whether unreadable rows are left out or raise, and the list of their cells."""
RAISING: By = (None, None)
"""Unreadable rows raise UnreadableRow."""


class Rereader(Protocol):
    """A dialect's handling of stored values that its driver cannot return."""

    def __hash__(self) -> int: ...

    typed: bool
    """Whether the database guarantees that a column holds only values of its type (Postgres)."""

    def refused(self, error: BaseException) -> bool:
        """Whether the error means that the driver could not convert a stored value to a Python object."""

    def lenient(self, driver: Any) -> AbstractContextManager[None]:
        """A context in which the driver connection returns a stand-in (NotText, NotLoaded) for such a value."""


def rows_on(cursor: Any, driver: Any, reader: Rereader, most: int | None = None) -> list[Any]:
    """The next rows of a cursor of SQLite, at most `most`, for a statement that must not be executed again.

    The driver fetches them one by one. A cursor that refuses a row has not passed it, and gives it to a lenient driver.
    """
    rows: list[Any] = []
    try:
        for row in islice(cursor, most):
            rows.append(row)  # what a list comprehension has found is lost with its error
    except Exception as error:
        if not reader.refused(error):
            raise
        with reader.lenient(driver):
            rows += islice(cursor, None if most is None else most - len(rows))
    return rows
