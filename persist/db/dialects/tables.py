"""The interface of a dialect's tables: which there are, how their ids go on, and how a shell upgrades them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from sqlalchemy import Connection, Table


class Tables(ABC):
    """The tables in a store's schema, as the database knows them."""

    @abstractmethod
    def names(self, connection: Connection) -> set[str]:
        """The names of the tables in the store's schema."""

    @abstractmethod
    def advance_sequences(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Advance the sequences of these tables past their highest ids, after rows with explicit ids were inserted."""

    @abstractmethod
    def suspend_references(self, connection: Connection, tables: Sequence[Table]) -> Sequence[str]:
        """Check no foreign key of these tables until `restore_references`, which gets what is returned, or the COMMIT."""

    def restore_references(self, connection: Connection, suspended: Sequence[str]) -> None:
        """Check the foreign keys again, those of the rows that are there, too."""
        for statement in suspended:
            connection.exec_driver_sql(statement)

    @abstractmethod
    def upgrade_command(self) -> str:
        """The shell command that upgrades this database."""
