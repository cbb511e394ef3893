"""Upserts: INSERT … ON CONFLICT, in the syntax that both databases share."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal

from sqlalchemy import ClauseElement, ColumnElement, Insert, Table, and_, bindparam, exists, insert, literal, not_, or_, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from persist.db.changes.batch import Batch
from persist.db.sqlalchemy_private import end_with
from persist.db.statements.prepared import Row, Statement
from persist.errors import Conflict, named

# INSERT of one row under a condition, so that a statement of a batch writes nothing where an earlier one found nothing.


def insert_where(
    table: Table,
    condition: ColumnElement[bool],
    values: Mapping[str, Any] | None = None,
    *,
    of: Table | None = None,
    lock: bool = False,
) -> Insert:
    """`INSERT … SELECT … WHERE condition` of parameters and `values`. `of`: the table whose one row is chosen, and locked."""
    columns = [column for column in table.columns if column.identity is None]
    given = values or {}
    row = select(*(given.get(column.name, bindparam(column.name, type_=column.type)) for column in columns)).where(condition)
    if of is not None:
        row = row.select_from(of)
    if lock:
        row = row.with_for_update(of=of)
    return insert(table).from_select([column.name for column in columns], row)


Rule = Literal["earliest", "latest", "later", "sum", "capped_sum", "new", "until_complete", "new_inside"]
_MAX = 2**63 - 1
_RULES: dict[Rule, str] = {
    "earliest": "CASE WHEN excluded.{0} < {1}.{0} THEN excluded.{0} ELSE {1}.{0} END",
    "latest": "CASE WHEN excluded.{0} > {1}.{0} THEN excluded.{0} ELSE {1}.{0} END",
    # An instant, as milliseconds. One that another program spoilt is text, or beyond the calendar, and is replaced.
    "later": "CASE WHEN {1}.{0} BETWEEN excluded.{0} AND 253402300799998 THEN {1}.{0} + 1 ELSE excluded.{0} END",
    "sum": "{1}.{0} + excluded.{0}",
    # of figures that are not negative; at most what 64 bits hold
    "capped_sum": f"CASE WHEN {{1}}.{{0}} > {_MAX} - excluded.{{0}} THEN {_MAX} ELSE {{1}}.{{0}} + excluded.{{0}} END",
    "new": "excluded.{0}",
    "until_complete": "CASE WHEN {1}.complete THEN {1}.{0} ELSE excluded.{0} END",
    # a body that a row holds itself is written anew, and so mended
    "new_inside": "CASE WHEN excluded.{0} IS NULL OR ({1}.complete AND {1}.outside) THEN {1}.{0} ELSE excluded.{0} END",
}


class _OnConflict(ClauseElement):
    inherit_cache = False  # compiled once per store, as part of a prepared statement

    def __init__(self, table: Table, keys: Sequence[str], rules: Mapping[str, Rule], where: str = "") -> None:
        self.table, self.keys, self.rules, self.where = table, keys, rules, where


def insert_missing(table: Table, *keys: str) -> Insert:
    """An INSERT that does nothing if a row has the same key; rowcount 1 or 0. `keys`: the key's columns; by default any key."""
    return merge(table, *keys)


def _is_of_former(table: Table) -> ColumnElement[bool]:
    """Whether rows of other tables refer to an `id` that no row has: a new row's owner would see them."""
    id = bindparam("id", type_=table.c.id.type)
    keyed = (key for other in table.metadata.tables.values() if other is not table for key in other.foreign_keys)
    links = [key.parent for key in keyed if key.target_fullname == f"{table.fullname}.id"]
    return and_(~exists().where(table.c.id == id), or_(*(exists().where(link == id) for link in links)))


@cache
def _left_by_former(table: Table) -> Statement:
    return Statement(select(literal(1)).where(_is_of_former(table)))


def refuse_former(row: Callable[..., Row | None], table: Table, kind: str, id: str) -> None:
    """Raise Conflict if rows of a former row with the id are left. `row`: asks for a statement's first row."""
    if row(_left_by_former(table), id=id) is not None:
        raise of_former(table, kind, id)


def of_former(table: Table, kind: str, id: str) -> Conflict:
    """The refusal of the id of a former row."""
    text = f"Rows of a former {kind} {named(id)} are left in the file: `persist doctor --fix` sets them aside."
    return Conflict(text, constraint=f"pk_{table.name}")


def unless_there(statement: Insert, *keys: str) -> Insert:
    """Let an INSERT do nothing for a row whose key exists, as `insert_missing` does. Changes the INSERT."""
    return merging(statement, *keys)


def taken(statement: Statement, kind: str, id: str) -> Conflict:
    """The error for an INSERT that did nothing, since its `id` is taken by another row. The transaction stays usable after it."""
    table = statement.statement.table.name  # type: ignore[attr-defined]  # an Insert has one
    return Conflict(f"The id {named(id)} is taken by another {kind}.", constraint=f"pk_{table}")


def seen(row: Row | None, statement: Statement, kind: str, name: str) -> Row:
    """The row with the key, after an INSERT that left one. Raises Conflict if row security hides it, as another role's row."""
    if row is None:
        table = statement.statement.table.name  # type: ignore[attr-defined]  # an Insert has one
        raise Conflict(f"The name {named(name)} is taken by a {kind} that this role does not see.", constraint=f"pk_{table}")
    return row


def upsert(table: Table, *keys: str, keep: Sequence[str] = (), where: str = "") -> Insert:
    """An INSERT that overwrites the row with its key, except for columns in `keep`, if `where` is true of `excluded`."""
    return overwriting(insert(table), *keys, keep=keep, where=where)


def overwriting(statement: Insert, *keys: str, keep: Sequence[str] = (), where: str = "") -> Insert:
    """Let an INSERT that has no such clause yet overwrite the row with the same key, as `upsert` does. Changes the INSERT."""
    rules: dict[str, Rule] = {column.name: "new" for column in statement.table.columns if column.name not in (*keys, *keep)}
    assert isinstance(statement.table, Table)
    end_with(statement, _OnConflict(statement.table, keys, rules, where))
    return statement


def merge(table: Table, *keys: str, **rules: Rule) -> Insert:
    """An INSERT that merges into the row with the same key, by the rule of each column; without rules that row stays."""
    return merging(insert(table), *keys, **rules)


def merging(statement: Insert, *keys: str, **rules: Rule) -> Insert:
    """Let an INSERT that has no such clause yet merge into the row with the same key, as `merge` does. Changes the INSERT."""
    table = statement.table
    assert isinstance(table, Table)
    end_with(statement, _OnConflict(table, keys, rules))
    return statement


@compiles(_OnConflict)
def _render_on_conflict(element: _OnConflict, compiler: SQLCompiler, **kw: Any) -> str:
    quote = compiler.preparer.quote
    target = f" ({', '.join(map(quote, element.keys))})" if element.keys else ""
    if not element.rules:
        return f"ON CONFLICT{target} DO NOTHING"
    table = quote(element.table.name)
    changes = (f"{quote(name)} = {_RULES[rule].format(quote(name), table)}" for name, rule in element.rules.items())
    where = f" WHERE {element.where}" if element.where else ""
    return f"ON CONFLICT{target} DO UPDATE SET {', '.join(changes)}{where}"


class FirstUse:
    """Makes the row of an id at its first use, and merges by `rules` later. A file may refuse the id of a former row."""

    __slots__ = ("_kind", "_merge", "_merge_in_file", "_table")

    def __init__(self, table: Table, kind: str, **rules: Rule) -> None:
        self._table, self._kind = table, kind
        self._merge = Statement(merge(table, "id", **rules))
        self._merge_in_file = Statement(merging(insert_where(table, not_(_is_of_former(table))), "id", **rules))

    def run(self, batch: Batch, **values: Any) -> None:
        """Make or change the row. Raises Conflict for the id of a former row."""
        if not batch.one_writer:
            batch.run(self._merge, **values)
        elif not batch.run(self._merge_in_file, **values).result:
            raise of_former(self._table, self._kind, values["id"])
