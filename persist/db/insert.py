"""INSERT … ON CONFLICT, in the words both databases share."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import ClauseElement, Insert, Table, insert
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


Rule = Literal["earliest", "latest", "sum", "new"]
_RULES: dict[Rule, str] = {
    "earliest": "CASE WHEN excluded.{0} < {1}.{0} THEN excluded.{0} ELSE {1}.{0} END",
    "latest": "CASE WHEN excluded.{0} > {1}.{0} THEN excluded.{0} ELSE {1}.{0} END",
    "sum": "{1}.{0} + excluded.{0}",
    "new": "excluded.{0}",
}


class _OnConflict(ClauseElement):
    """What becomes of the row with the same key."""

    inherit_cache = False  # compiled once per store, as part of a hot statement

    def __init__(self, table: Table, keys: Sequence[str], rules: Mapping[str, Rule]) -> None:
        self.table, self.keys, self.rules = table, keys, rules


def merge(table: Table, *keys: str, **rules: Rule) -> Insert:
    """An INSERT that merges into the row with the same key: the columns named by their rules, the others stay.

    Without rules the row is left alone, and without keys any key of the table counts. With `returning` it gives the merged row;
    without rules only a new one.
    """
    statement = insert(table)
    statement._post_values_clause = _OnConflict(table, keys, rules)
    return statement


@compiles(_OnConflict)
def _render_on_conflict(element: _OnConflict, compiler: SQLCompiler, **kw: Any) -> str:
    quote = compiler.preparer.quote
    target = f"ON CONFLICT ({', '.join(map(quote, element.keys))})" if element.keys else "ON CONFLICT"
    if not element.rules:
        return f"{target} DO NOTHING"
    table = quote(element.table.name)
    changes = (f"{quote(name)} = {_RULES[rule].format(quote(name), table)}" for name, rule in element.rules.items())
    return f"{target} DO UPDATE SET {', '.join(changes)}"
