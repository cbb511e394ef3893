"""The two kinds of database a schema test looks at, behind one face; and the repository's own Alembic files."""

import sqlite3
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from alembic.config import Config
from psycopg import sql

from persist.schema.metadata import metadata
from tests.schema.catalog import Catalog, Fact, postgres_catalog, postgres_rows, sqlite_catalog, sqlite_rows

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ROOT / "alembic" / "versions"
TABLES = sorted(table.name for table in metadata.sorted_tables)
VERSION_TABLE = "persist_alembic_version"


class Place:
    """One database by its URL, looked at with the bare driver."""

    def __init__(self, url: str, schema: str = "persist") -> None:
        self.url = url
        self.is_postgres = url.startswith("postgresql")
        self.schema = schema if self.is_postgres else None
        self.path = Path(url.removeprefix("sqlite:///"))

    def named(self, table: str) -> str:
        """A table's name as SQL says it here."""
        return f"{self.schema}.{table}" if self.schema else table

    def catalog(self) -> Catalog:
        """Every fact about its schema."""
        return postgres_catalog(self.url, self.schema) if self.schema else sqlite_catalog(str(self.path))

    def rows(self, *tables: str) -> dict[str, list[Fact]]:
        """The rows of some tables, or of all of ours."""
        wanted = [*tables] or [*TABLES, VERSION_TABLE]
        return postgres_rows(self.url, wanted, self.schema) if self.schema else sqlite_rows(str(self.path), wanted)

    def run(self, *statements: str) -> None:
        """Execute statements in one transaction."""
        if self.is_postgres:
            with psycopg.connect(self.url) as connection:
                for statement in statements:
                    connection.execute(statement.encode())
            return
        lite = sqlite3.connect(self.path)
        try:
            with lite:
                for statement in statements:
                    lite.execute(statement)
        finally:
            lite.close()

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        if self.is_postgres:
            with psycopg.connect(self.url) as connection:
                return connection.execute(query.encode()).fetchall()
        lite = sqlite3.connect(self.path)
        try:
            return lite.execute(query).fetchall()
        finally:
            lite.close()

    def create_schema(self) -> None:
        """Make the schema, on Postgres."""
        if self.schema:
            with psycopg.connect(self.url) as connection:
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.schema)))


def repository_config(url: str, *options: str) -> Config:
    """`alembic -x url=… -x …` in the repository, without starting a process."""
    return Config(ROOT / "alembic.ini", cmd_opts=Namespace(x=[f"url={url}", *options]))


def revision_files() -> Sequence[Path]:
    """The files of revisions, oldest first."""
    return sorted(VERSIONS.glob("*.py"))
