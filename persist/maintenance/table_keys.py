"""The keys of tables: what identifies a row in every database, and the SELECTs that read rows in the order of their keys."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    ForeignKeyConstraint,
    Select,
    Table,
    Text,
    bindparam,
    case,
    func,
    literal_column,
    select,
)

from persist.db.changes.journal import key_of
from persist.db.dialects.bulk import Columns, Row, absent, key_value
from persist.db.dialects.raw_rows import Cells, Place, RawRows
from persist.db.expressions.keyset import behind
from persist.db.schema.column_types import EnumText, Label
from persist.db.schema.scope_columns import OWN, scope_of
from persist.db.statements.prepared import LIMIT, Statement
from persist.schema.metadata import metadata

# Finds the rows that depend on a row by foreign keys: rows to remove with it, and nullable references to empty.

_ORDER = {table: at for at, table in enumerate(metadata.sorted_tables)}


PlaceOfRow = tuple[Table, Place]
Further = Callable[[Table, Place], Iterable[tuple[Table, Mapping[str, Any], str | None]]]


@dataclass(slots=True)
class Hanging:
    """A row and its dependents.

    `rows`: the row and the rows that must be removed with it, parents first.
    `loose`: rows that stay, each with its columns that refer to a removed row and must be emptied.
    """

    rows: list[PlaceOfRow] = field(default_factory=list)
    loose: dict[PlaceOfRow, list[str]] = field(default_factory=dict)


def hanging_on(raw: RawRows, table: Table, place: Place, further: Further) -> Hanging:
    """Find every row that depends on a row, directly or indirectly. The rows found are locked against other writers.

    `further`: what depends on a row though no foreign key says so; a column of a row that stays and lets go.
    """
    found: dict[PlaceOfRow, None] = {(table, place): None}
    loose: dict[PlaceOfRow, list[str]] = {}
    waiting = [(table, place)]
    for parent, at in waiting:  # the loop appends to this list
        cells = raw.cells(parent, at)
        for key in _references_to(raw, parent):
            where = {element.parent.name: cells.get(element.column.name) for element in key.elements}
            if any(cell is None for cell in where.values()):
                continue
            for row in [(key.table, place) for place in raw.find(key.table, where)]:
                if _lets_go(key):
                    loose.setdefault(row, []).extend(key.column_keys)
                elif row not in found:
                    found[row] = None
                    waiting.append(row)
        for of, named, column in further(parent, at):
            for row in [(of, place) for place in raw.find(of, {name: raw.cell(value) for name, value in named.items()})]:
                if column is not None:
                    loose.setdefault(row, []).append(column)
                elif row not in found:
                    found[row] = None
                    waiting.append(row)
    rows = sorted(found, key=lambda row: _ORDER[row[0]])  # stable: rows of one table keep their order
    return Hanging(rows, {row: columns for row, columns in loose.items() if row not in found})


def parents_of(raw: RawRows, table: Table) -> Iterator[tuple[ForeignKeyConstraint, Table]]:
    """Yield the foreign keys that a table has in this database, each with the table referred to."""
    for key in table.foreign_key_constraints:
        if key.info.get("dialect", raw.word) == raw.word:
            yield key, key.referred_table


def referred(key: ForeignKeyConstraint, cells: Cells) -> Cells | None:
    """Return the column values of the row that a foreign key refers to. None if the foreign key is null."""
    pairs = {element.column.name: cells.get(element.parent.name) for element in key.elements}
    return None if any(cell is None for cell in pairs.values()) else pairs


def _references_to(raw: RawRows, parent: Table) -> Iterator[ForeignKeyConstraint]:
    for table in _ORDER:
        for key, of in parents_of(raw, table):
            if of is parent:
                yield key


def _lets_go(key: ForeignKeyConstraint) -> bool:
    """Whether a key is emptied when its target goes: a single nullable column to another table, without ON DELETE."""
    column = next(iter(key.columns))
    alone = len(key.columns) == 1 and key.table is not key.referred_table
    return alone and bool(column.nullable) and key.ondelete is None


Key = tuple[Any, ...]

_OWNER = "owner_of_file"


@cache
def key_columns(table: Table) -> Columns:
    """The columns that identify a row, in every kind of database."""
    return tuple(table.columns[name] for name in key_of(table))


@cache
def page_columns(table: Table, *, one_file: bool) -> Columns:
    """The columns of the index by which a database finds a row: in a file the id alone where the server has (scope, id)."""
    columns = key_columns(table)
    return columns[1:] if one_file and table.info.get("key_scope") is not None else columns


def key_in(row: Row, columns: Columns, key: Columns) -> list[Any]:
    """The key of a row that has these columns."""
    names = [column.name for column in columns]
    return [key_value(column, row[names.index(column.name)]) for column in key]


@cache
def first_page(table: Table, *, one_file: bool) -> Statement:
    """Rows in the order of their keys, up to `limit`."""
    return Statement(_page(table, one_file=one_file))


@cache
def next_page(table: Table, *, one_file: bool) -> Statement:
    """Rows after the key `after_0`, `after_1`, … in the order of their keys, up to `limit`."""
    key = page_columns(table, one_file=one_file)
    after = [bindparam(f"after_{place}", type_=_plain(column)) for place, column in enumerate(key)]
    return Statement(_page(table, one_file=one_file).where(behind([_term(column) for column in key], after)))


def after(key: Sequence[Any]) -> dict[str, Any]:
    """The parameters of `next_page`."""
    return {f"after_{place}": value for place, value in enumerate(key)}


def _page(table: Table, *, one_file: bool) -> Select[Any]:
    return select(table).order_by(*map(_term, page_columns(table, one_file=one_file))).limit(LIMIT)


@cache
def ordered_rows(table: Table, scope: str | None, *, keys_only: bool = False) -> Statement:
    """Every row of a table, or its key, ordered by the key. `scope`: whose empty columns are ordered as `owner(…)` says."""
    key = key_columns(table)
    return Statement(select(*key if keys_only else table.columns).order_by(*(_ordered(column, scope) for column in key)))


def owned_key(table: Table, own: Mapping[str, str]) -> str | None:
    """The scope in the table's key, if rows that belong to the file itself get its id."""
    return next((scope for column in key_columns(table) if (scope := scope_of(column)) is not None and scope in own), None)


def owner(scope: str | None, own: Mapping[str, str]) -> dict[str, str]:
    """The parameters of `ordered_rows`."""
    return {} if scope is None else {_OWNER: own[scope]}


def _ordered(column: Column[Any], scope: str | None) -> ColumnElement[Any]:
    if scope is None or scope_of(column) != scope:
        return _term(column)
    return case((column == OWN, bindparam(_OWNER, type_=Text())), else_=column)


def _term(column: Column[Any]) -> ColumnElement[Any]:
    return func.coalesce(column, literal_column(repr(absent(column)))) if column.nullable else column


def _plain(column: Column[Any]) -> Any:
    """A type that gives keys to the driver as they are: what a file holds may be what no column type takes."""
    return Text() if isinstance(column.type, Label | EnumText) else BigInteger()


def comparable(key: Sequence[Any]) -> Key:
    """The key in the order in which both kinds of database sort: NULL, numbers, text by its code points, bytes."""
    return tuple((1 if isinstance(value, int | float) else 2 if isinstance(value, str) else 3, value) for value in key)
