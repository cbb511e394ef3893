"""Guard triggers of the event log: while it is on, a writer that does not declare to record events cannot change a row."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from sqlalchemy import Connection, Table

from persist.db.changes.journal import LogTables

MESSAGE = "the log of events is on, and this writer does not keep it"
PREFIX = "persist_event_guard"
"""The prefix of the names of guard triggers and their functions."""
CHANGES = ("INSERT", "UPDATE", "DELETE")
ESCAPE_CHARACTER = 0xFDD0
"""The escape character of stored text. A delta with this text is not plain JSON, so its writer must log the delta."""


class EventGuards(ABC):
    """Creates and drops the guard triggers, inside the caller's transaction."""

    @abstractmethod
    def create(self, connection: Connection, tables: Sequence[Table], log: LogTables) -> None:
        """Create the triggers, which refuse every change of the tables by a writer that does not record events."""

    def number(self, connection: Connection, log: LogTables) -> bool:
        """Create the trigger that gives positions to events of older releases. False: the database takes no triggers."""
        return True

    def drop(self, connection: Connection, tables: Sequence[Table]) -> None:  # noqa: B027  # of a file `drop_functions` drops all
        """Drop the triggers of these tables."""

    @abstractmethod
    def drop_functions(self, connection: Connection) -> None:
        """Drop what the triggers share, and every trigger that is left."""

    def check_rights(self, connection: Connection, tables: Sequence[Table], *, on: bool) -> None:  # noqa: B027  # who writes may
        """Raise NotPermitted if the role may not create (`on`) or drop the triggers."""

    def lock_tables(self, connection: Connection, tables: Sequence[Table]) -> None:  # noqa: B027  # a writer locks the whole file
        """Lock the tables against writes of other transactions until this transaction ends."""

    def be_brief(self, connection: Connection, *, at_once: bool) -> None:  # noqa: B027  # a writer of a file has its lock already
        """Give up in this transaction when a lock takes long, or is taken (`at_once`), so that nobody waits long behind it."""

    def missing(self, connection: Connection, tables: Sequence[Table]) -> int:
        """How many of the tables have no trigger."""
        return 0
