"""INSERT … ON CONFLICT DO NOTHING, in the words both databases share."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Insert, Table
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler


class InsertMissing(Insert):
    """An INSERT of named parameters that leaves an existing row with the same key alone; rowcount says which it was."""

    inherit_cache = False  # compiled once per store, as a hot statement
    keys: Sequence[str] = ()


def insert_missing(table: Table, *keys: str) -> InsertMissing:
    """Every column of the table a named parameter; `keys` are the columns of the key or unique index."""
    statement = InsertMissing(table)
    statement.keys = keys
    return statement


@compiles(InsertMissing)
def _render(element: InsertMissing, compiler: SQLCompiler, **kw: Any) -> str:
    columns = ", ".join(compiler.preparer.quote(key) for key in element.keys)
    insert: str = compiler.visit_insert(element, **kw)  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
    return f"{insert} ON CONFLICT ({columns}) DO NOTHING"
