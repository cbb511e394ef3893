"""What reading rows that cannot be read takes beside the rows: who asks, and what the database's driver leaves to us."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

from persist.db.spoilt import Spoilt, Unreadable

By = tuple[Spoilt | None, list[Unreadable] | None]
"""Whether rows that cannot be read are left out or refused, and where what stands for their cells is noted; see `Cells.rows`."""
NOBODY: By = (None, None)


class Rereader(Protocol):
    """What a dialect knows of values that its driver cannot give."""

    def __hash__(self) -> int: ...

    typed: bool
    """Whether a column holds only what its type allows."""

    def refused(self, error: BaseException) -> bool:
        """Whether the driver could not make an object of a value."""

    def lenient(self, driver: Any) -> AbstractContextManager[None]:
        """Statements of the connection that fetch inside of it are given something in the place of such a value."""
