"""The guard of a database whose log of events is on: no writer that does not keep the log can change a row.

A log that some writers skip is worse than none. While it is off there is no guard, and nothing to pay. Who keeps the log
says so: on Postgres by a setting of the transaction, on SQLite by a function of the connection, which a program that knows
nothing of the log does not have.

Pieces of growing text are too many for that: one that comes in a transaction that does not keep the log is logged by the
database itself, in the one statement that writes it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from sqlalchemy import Connection, Table

from persist.db.changes.event_streams import LogTables

MESSAGE = "the log of events is on, and this writer does not keep it"
PREFIX = "persist_event_guard"
"""Names of triggers and functions begin with it."""
CHANGES = ("INSERT", "UPDATE", "DELETE")
ESCAPE_CHARACTER = 0xFDD0
"""The character that stored text escapes with: such a piece is not plain JSON, so its writer has to log it."""


class EventGuards(ABC):
    """Raises and drops the guard, inside the caller's transaction."""

    @abstractmethod
    def create(self, connection: Connection, tables: Sequence[Table], log: LogTables) -> None:
        """Refuse from now on every writer that changes one of the tables without keeping the log."""

    @abstractmethod
    def drop(self, connection: Connection) -> None:
        """Refuse nobody any more."""

    @abstractmethod
    def check_rights(self, connection: Connection, tables: Sequence[Table], *, on: bool) -> None:
        """NotPermitted where the role may not create (`on`) or drop the guard."""

    @abstractmethod
    def lock_tables(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Wait until no other transaction changes the tables, and let none until this one ends."""
