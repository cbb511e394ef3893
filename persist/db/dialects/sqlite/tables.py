"""The tables of a SQLite file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table

from persist.db.dialects.quoting import quoted
from persist.db.dialects.sqlite.host_references import HostReferences, let_go
from persist.db.dialects.tables import StoredColumn, Tables
from persist.db.values.command_words import command_word


class SqliteTables(Tables):
    """The tables of the file `path`, or of `:memory:` if it is None."""

    def __init__(self, path: Path | None, references: HostReferences) -> None:
        self._path, self._references = path, references

    def names(self, connection: Connection) -> set[str]:
        rows = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {name for (name,) in rows if not name.startswith("sqlite_")}

    def columns(self, driver: Any, table: str) -> list[StoredColumn]:
        rows = driver.execute(f"PRAGMA table_xinfo({quoted(table)})").fetchall()
        return [StoredColumn(row[1], row[2], bool(row[3])) for row in rows if not row[6]]

    def advance_sequences(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Do nothing: SQLite generates the number after the highest one in the table."""

    def suspend_references(self, connection: Connection, tables: Sequence[Table]) -> Sequence[str]:
        connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        let_go(connection.connection.driver_connection)
        return ()

    def restore_references(self, connection: Connection, suspended: Sequence[str]) -> None:
        self._references.keep(connection.connection, connection.info, connection.connection.driver_connection)

    def expected_rows(self, driver: Any, sql: str, args: Sequence[Any]) -> int | None:
        """None: SQLite's planner knows proportions, and these only as they were at the last ANALYZE."""

    def upgrade_command(self) -> str:
        """What upgrades the file; another process sees nothing of a database in memory."""
        if self._path is None:
            return "persist.upgrade(engine). It is a database in memory: to keep its rows, name a file, as in sqlite:///state.db"
        return super().upgrade_command()

    def arguments(self, schema_option: str) -> str:
        return command_word("sqlite:///:memory:" if self._path is None else f"sqlite:///{self._path}")
