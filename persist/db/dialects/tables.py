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
    def upgrade_command(self) -> str:
        """The shell command that upgrades this database."""
