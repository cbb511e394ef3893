"""SQLite: any column holds anything, and the driver gives up a whole result for one text that is not UTF-8."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from persist.db.unreadable.cells import NotText


class SqliteRereader:
    """See `persist.db.unreadable.rereading.Rereader`."""

    typed = False

    def refused(self, error: BaseException) -> bool:
        """Raised by the driver itself, so it has no name of SQLite's."""
        return str(error).startswith("Could not decode to UTF-8")

    @contextmanager
    def lenient(self, driver: Any) -> Iterator[None]:
        """Text that is no text comes as what marks it."""
        connection = getattr(driver, "connection", driver)
        before = connection.text_factory
        connection.text_factory = _text
        try:
            yield
        finally:
            connection.text_factory = before


def _text(stored: bytes) -> object:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return NotText(stored)


REREADER = SqliteRereader()
