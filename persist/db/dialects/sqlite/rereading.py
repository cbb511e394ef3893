"""Reading invalid text on SQLite, where the driver fails a whole result for one text that is not UTF-8."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from persist.db.unreadable.cells import NotText


class SqliteRereader:
    """See `persist.db.unreadable.rereading.Rereader`."""

    typed = False

    def refused(self, error: BaseException) -> bool:
        """Whether the driver failed to decode text; such an error has no result code, so its message is checked."""
        return str(error).startswith("Could not decode to UTF-8")

    @contextmanager
    def lenient(self, driver: Any) -> Iterator[None]:
        """Inside the block the driver returns NotText for text that is not UTF-8."""
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
