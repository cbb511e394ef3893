"""The interface of a dialect's tables: which there are, how their ids go on, and how a shell upgrades them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table


class StoredColumn(NamedTuple):
    """A column as the database knows it, with its declared type."""

    name: str
    type: str
    not_null: bool


class Tables(ABC):
    """The tables in a store's schema, as the database knows them."""

    @abstractmethod
    def names(self, connection: Connection) -> set[str]:
        """The names of the tables in the store's schema."""

    @abstractmethod
    def columns(self, driver: Any, table: str) -> list[StoredColumn]:
        """The columns of a table, also those that persist does not know, without computed ones."""

    def may_lack(self, driver: Any, table: Table) -> frozenset[str]:
        """The columns that persist's own tables have NOT NULL, and that may be NULL in this database."""
        loose = {column.name for column in self.columns(driver, table.name) if not column.not_null}
        return frozenset(str(column.name) for column in table.columns if not column.nullable and column.name in loose)

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
    def expected_rows(self, driver: Any, sql: str, args: Sequence[Any]) -> int | None:
        """How many rows the planner expects of a compiled SELECT, which is not executed; None if it does not say."""

    @abstractmethod
    def arguments(self, schema_option: str) -> str:
        """The database in a shell command: its URL without secrets, and the option with its schema if that has another name."""

    def upgrade_command(self) -> str:
        """The shell command that upgrades this database."""
        return f"persist upgrade --url {self.arguments('--schema')}"
