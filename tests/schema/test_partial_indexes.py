"""A partial index serves a query only if the query says what the index says; SQLite tells when it does not."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Index, Select, literal_column, select
from sqlalchemy.dialects import sqlite

from persist import Store
from persist.db.schema.base import SCHEMA_TOKEN
from persist.schema.metadata import metadata
from tests.cases import each

INDEXES = sorted((index for table in metadata.sorted_tables for index in table.indexes), key=lambda index: str(index.name))
PARTIAL = [
    index
    for index in INDEXES
    if index.dialect_options["sqlite"]["where"] is not None and index.info.get("dialect") != "postgresql"
]


@each("index", PARTIAL, ids=lambda index: str(index.name))
def test_the_condition_of_a_partial_index_is_recognised_in_queries(index: Index, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    Store.open(f"sqlite:///{path.as_posix()}").close()
    assert index.table is not None
    dialect = sqlite.dialect()
    dialect.default_schema_name = "main"
    query: Select[Any] = select(literal_column("1")).select_from(index.table).where(index.dialect_options["sqlite"]["where"])
    text = str(query.compile(dialect=dialect, schema_translate_map={SCHEMA_TOKEN: None}, render_schema_translate=True))
    name = index.table.name
    forced = text.replace(f"FROM main.{name}", f"FROM {name} INDEXED BY {index.name}", 1).replace(f"main.{name}.", "")
    assert "INDEXED BY" in forced
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(forced)  # "no query solution" if the index cannot serve it
