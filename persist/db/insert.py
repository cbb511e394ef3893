"""INSERT … ON CONFLICT, in the words both databases share."""

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
    """Every column of the table a named parameter; `keys` are the columns of the key or unique index, none for any of them."""
    statement = InsertMissing(table)
    statement.keys = keys
    return statement


@compiles(InsertMissing)
def _render(element: InsertMissing, compiler: SQLCompiler, **kw: Any) -> str:
    columns = ", ".join(compiler.preparer.quote(key) for key in element.keys)
    target = f"({columns}) " if columns else ""
    insert: str = compiler.visit_insert(element, **kw)  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
    return f"{insert} ON CONFLICT {target}DO NOTHING"


class Upsert(Insert):
    """An INSERT of named parameters that overwrites the row with the same key, but for some columns."""

    inherit_cache = False  # compiled once per store, as a hot statement
    keys: Sequence[str] = ()
    kept: Sequence[str] = ()


def upsert(table: Table, *keys: str, keep: Sequence[str] = ()) -> Upsert:
    """Every column of the table a named parameter; the columns of `keep` keep what the row has."""
    statement = Upsert(table)
    statement.keys, statement.kept = keys, keep
    return statement


@compiles(Upsert)
def _render_upsert(element: Upsert, compiler: SQLCompiler, **kw: Any) -> str:
    quote = compiler.preparer.quote
    columns = ", ".join(map(quote, element.keys))
    names = [column.name for column in element.table.columns if column.name not in (*element.keys, *element.kept)]
    changes = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in names)
    insert: str = compiler.visit_insert(element, **kw)  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
    return f"{insert} ON CONFLICT ({columns}) DO UPDATE SET {changes}"
