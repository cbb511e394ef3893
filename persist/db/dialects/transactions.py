"""The interface of a dialect's transactions: how one begins, what executes its statements, and how it ends."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Table

from persist.db.concurrency.writer_lock import Waiting

AUTOCOMMIT = "it is in AUTOCOMMIT mode, where there is no transaction to join."
"""The reason given when a caller's connection is refused."""


class Transactions(ABC):
    """Begins and ends transactions on the connections of one store, and in those of its callers."""

    @abstractmethod
    def begin(self, connection: Connection, *, write: bool, driver: Any = None, waiting: Waiting | None = None) -> Any:
        """Start a transaction on an idle connection and return what executes its statements. Every transaction starts here.

        `driver`: the driver's connection, where the caller knows it.

        On persist's own connections only the driver's transaction is started. SQLAlchemy's transaction begins with the first
        statement that SQLAlchemy runs; `end` ends both.
        """

    def end(self, connection: Connection | None, driver: Any, *, commit: bool) -> None:
        """Commit or roll back the transaction that `begin` started.

        `connection`: None if SQLAlchemy ran nothing on it. `driver`: None on a caller's engine.
        """
        of: Any = driver
        if connection is not None and (driver is None or connection.get_transaction() is not None):
            of = connection
        (of.commit if commit else of.rollback)()

    @abstractmethod
    def end_read(self, connection: Connection | None, driver: Any) -> None:
        """End a snapshot with COMMIT. After a ROLLBACK the drivers would discard their prepared statements."""

    @abstractmethod
    def ends_at_once(self, connection: Connection, driver: Any) -> bool:
        """Whether a snapshot can end, and its connection be released, without blocking."""

    @abstractmethod
    def join(self, connection: Connection) -> None:
        """Prepare the caller's own transaction for a write: take the locks that a write needs, and allow savepoints."""

    def keep_references(self, tables: Callable[[], Sequence[Table]]) -> None:  # noqa: B027  # a server always keeps them
        """Keep the foreign keys of these tables also on connections of callers that leave them unchecked."""

    @abstractmethod
    def mark_joined(self, connection: Connection, *, marked: bool) -> None:
        """Mark the caller's own transaction for the triggers that note raw writes, or take the mark back."""

    @abstractmethod
    def runner(self, driver: Any) -> Any:
        """Return the object that executes the statements of a pinned connection, and commits them."""

    @abstractmethod
    def begin_pinned(self, runner: Any) -> None:
        """Start a write transaction on a pinned connection; on Postgres it is sent with its first statement."""

    @abstractmethod
    def driver_of(self, connection: Connection) -> Any:
        """Return the driver connection of a transaction, for statements that are executed on it directly."""

    @abstractmethod
    def reading_cursor(self, driver: Any) -> Any:
        """Return a driver cursor that fetches a result in batches until the transaction ends."""

    @abstractmethod
    def interrupt(self, driver: Any) -> None:
        """Cancel the running statement from another thread; end the connection if the cancellation fails."""
