"""The declarative base of every table, and the schema token that connections map to the real schema.

Every table has `schema="persist"`, a token: a schema_translate_map turns it into the configured Postgres schema, and into none
on SQLite. If the map is forgotten, a statement fails instead of using `public`. A host's tables are never re-routed.
"""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any

from sqlalchemy import Column, ColumnElement, DDLElement, Dialect, ForeignKeyConstraint, Index, MetaData, Table, TextClause, event
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.sql import operators
from sqlalchemy.sql.compiler import DDLCompiler, SQLCompiler
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.types import Boolean, NullType, Text

from persist.db.sqlalchemy_private import AS_BOOLEAN, made_of, written_as

# A shape takes a value (JSON is decoded first) and returns what is wrong with it, such as "no object"; None if it fits.

Shape = Callable[[Any], str | None]
Shapes = Mapping[Column[Any], Shape]


def any_value(value: Any) -> str | None:
    """Any value that the column's type allows."""
    return None


def json_object(value: Any) -> str | None:
    """A JSON object."""
    return None if isinstance(value, dict) else "no object"


def objects(value: Any) -> str | None:
    """A JSON list of objects."""
    return None if isinstance(value, list) and all(isinstance(item, dict) for item in value) else "no list of objects"


def json_text(value: str) -> str | None:
    """JSON as text, of which Python's own decoder also reads NaN."""
    try:
        json.loads(value)
    except (ValueError, TypeError, RecursionError):
        return "no JSON"
    return None


def texts(value: Any) -> str | None:
    """A JSON list of texts."""
    return None if isinstance(value, list) and all(isinstance(item, str) for item in value) else "no list of texts"


def texts_by_name(value: Any) -> str | None:
    """A JSON object of texts."""
    fits = isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    return None if fits else "no object of texts"


def floats32(value: bytes) -> str | None:
    """Bytes of whole 32-bit floats."""
    return "no whole number of 32-bit floats" if len(value) % 4 else None


def optional(shape: Shape) -> Shape:
    """The shape, or JSON null."""
    return lambda value: None if value is None else shape(value)


def word_of(words: type[StrEnum]) -> Shape:
    """A member of a StrEnum, as text."""
    known, complaint = frozenset(map(str, words)), f"none of {', '.join(words)}"
    return lambda value: None if value in known else complaint


_SETTINGS = "settings"


class TableSettings(DDLElement):
    """The statement that gives a table its settings."""

    inherit_cache = False

    def __init__(self, table: Table) -> None:
        self.table = table


@compiles(TableSettings)
def _render(element: TableSettings, compiler: DDLCompiler, **kw: Any) -> str:
    actions = element.table.info[_SETTINGS]
    return f"ALTER TABLE {compiler.preparer.format_table(element.table)} {', '.join(actions)}"


def set_for(table: Table, *, whole_row_identity: bool = False, fill_percent: int | None = None) -> None:
    """Declare settings that a table gets after its creation.

    `whole_row_identity`: the table has no primary key, so that a replica knows a changed row by all its columns; without it
    Postgres refuses every UPDATE and DELETE once a publication has the table. `fill_percent`: how full of rows a page is filled
    by inserts; in the room that is left a row is rewritten beside its old version, without a new entry in any index.
    """
    actions = []
    if whole_row_identity:
        actions.append("REPLICA IDENTITY FULL")
    if fill_percent is not None:
        actions.append(f"SET (fillfactor = {fill_percent})")
    table.info[_SETTINGS] = actions
    event.listen(table, "after_create", TableSettings(table).execute_if(dialect="postgresql"))


def settings_of(table: Table, dialect: Dialect) -> list[TableSettings]:
    """The statement that gives a new table its settings, in a list; an empty one where there are none."""
    return [TableSettings(table)] if dialect.name == "postgresql" and _SETTINGS in table.info else []


SCHEMA_TOKEN = "persist"
VERSION_TABLE = "persist_alembic_version"

NEVER_REUSED = {"sqlite_autoincrement": True}
"""Table options: an integer key is never reused, even after its row was deleted."""

ONE_TREE = {"sqlite_with_rowid": False}
"""Table options: SQLite's WITHOUT ROWID, so that a small write touches one page. Not for rows of many kilobytes."""

_NAMES = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
}


class Base(DeclarativeBase):
    """The root of every model."""

    metadata = MetaData(schema=SCHEMA_TOKEN, naming_convention=_NAMES)


@compiles(ForeignKeyConstraint, "sqlite")
def _render_reference(element: ForeignKeyConstraint, compiler: DDLCompiler, **kw: Any) -> str | None:
    """SQLite's compiler leaves out what refers to another schema: here the token of a file's tables, which have none."""
    table, referred = element.parent, element.referred_table
    of_host = table.schema is None and referred.schema == SCHEMA_TOKEN
    visit = partial(DDLCompiler.visit_foreign_key_constraint, compiler) if of_host else compiler.visit_foreign_key_constraint
    return visit(element, **kw)


def table_of(model: type[Base]) -> Table:
    """The Core table of a model, for building statements."""
    table = model.__table__
    assert isinstance(table, Table)
    return table


class Worded(ColumnElement[bool]):
    """A condition rendered as written: SQLAlchemy would compare booleans with 1, and SQLite no longer use a partial index."""

    inherit_cache = True
    type = Boolean()

    def self_group(self, against: OperatorType | None = None) -> Any:
        needs_no_parentheses = against is None or against in (operators.and_, operators.or_, AS_BOOLEAN)
        return self if needs_no_parentheses else Grouping(self)


@made_of(sql=InternalTraversal.dp_string)
class predicate(Worded):  # noqa: N801  # reads as the SQL it stands for
    """A condition as SQL text for both databases, over columns of one table: for partial indexes and their queries."""

    def __init__(self, sql: str) -> None:
        self.sql = sql


@compiles(predicate)
def _render_predicate(element: predicate, compiler: SQLCompiler, **kw: Any) -> str:
    return element.sql


@written_as(
    # json_valid comes first: invalid JSON that another program wrote counts as having no such key, and does not fail the query
    sqlite="CASE WHEN json_valid({column}) THEN json_extract({column}, '$.{json_key}') END IS {state}",
    postgresql="({column} ->> '{json_key}') IS {state}",
)
@made_of(column=InternalTraversal.dp_clauseelement, json_key=InternalTraversal.dp_string, present=InternalTraversal.dp_boolean)
class json_key_set(Worded):  # noqa: N801  # reads as the SQL function it stands for
    """Whether a JSON object column has a non-null value under a key: the same predicate in queries and partial indexes."""

    key: str

    def __init__(self, column: ColumnElement[Any], key: str, *, present: bool = True) -> None:
        assert key.isidentifier(), key  # the key becomes part of the SQL text
        self.column, self.json_key, self.present, self.state = column, key, present, "NOT NULL" if present else "NULL"

    def __invert__(self) -> "json_key_set":
        return json_key_set(self.column, self.json_key, present=not self.present)


LABEL_CHARACTERS = 200


@written_as(
    sqlite="substr(CASE WHEN json_valid({column}) THEN json_extract({column}, '$.{dotted}') END, 1, {most})",
    postgresql="left({column} #>> '{{{listed}}}', {most})",
)
@made_of(column=InternalTraversal.dp_clauseelement, path=InternalTraversal.dp_string_list)
class json_label(ColumnElement[str]):  # noqa: N801  # reads as the SQL function it stands for
    """The first 200 characters of the text at a path in a JSON column, short enough to be indexed; NULL if there is none."""

    type = Text()
    most = LABEL_CHARACTERS

    def __init__(self, column: ColumnElement[Any], *path: str) -> None:
        assert all(key.isidentifier() for key in path), path  # the keys become part of the SQL text
        self.column, self.path, self.dotted, self.listed = column, path, ".".join(path), ",".join(path)


@written_as(
    sqlite="CASE WHEN CASE WHEN json_valid({column}) THEN json_type({column}, '$.{json_key}') END IN ('integer', 'real')"
    " THEN json_extract({column}, '$.{json_key}') ELSE -9e999 END",
    postgresql="({column} -> '{json_key}')",
)
@made_of(column=InternalTraversal.dp_clauseelement, json_key=InternalTraversal.dp_string)
class json_number(ColumnElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """The number under a key of a JSON object column, to sort by. Text sorts before all numbers."""

    type = NullType()

    def __init__(self, column: ColumnElement[Any], key: str) -> None:
        assert key.isidentifier(), key  # the key becomes part of the SQL text
        self.column, self.json_key = column, key


@written_as(sqlite="{column} = 1", postgresql="{column}")
@made_of(column=InternalTraversal.dp_clauseelement)
class flag_set(Worded):  # noqa: N801  # reads as the SQL function it stands for
    """Whether a Bool column is true, in each database's SQL: for partial indexes and the queries they serve."""

    def __init__(self, column: ColumnElement[Any]) -> None:
        self.column = column


@written_as(sqlite="{text}", postgresql="{word}")
class _FlagDefault(TextClause):
    inherit_cache = False

    def __init__(self, on: bool) -> None:
        super().__init__("1" if on else "0")
        self.word = "true" if on else "false"


def flag_default(on: bool) -> TextClause:
    """The server default of a Bool column."""
    return _FlagDefault(on)


def partial_index(name: str, *columns: Any, where: ColumnElement[bool], unique: bool = False) -> Index:
    """An index over the rows that meet `where`, on both databases (on Postgres once `complete_indexes` has run)."""
    return Index(name, *columns, unique=unique, sqlite_where=where)


def list_index(name: str, *columns: Any, at: ColumnElement[Any], id: ColumnElement[Any]) -> None:
    """The index of a list, newest first. On SQLite it ends with the id, which on Postgres would double its size."""
    index_on_one("sqlite", f"{name}_newest", *columns, at.desc(), id.desc())
    index_on_one("postgresql", f"{name}_latest", *columns, at.desc())


def index_on_one(dialect: str, name: str, *columns: Any, where: ColumnElement[bool] | None = None) -> Index:
    """An index on one of the databases alone; `where`: the condition of a partial one (once `complete_indexes` has run)."""
    partial: dict[str, Any] = {} if where is None else {"sqlite_where": where}
    return Index(name, *columns, info={"dialect": dialect}, **partial).ddl_if(dialect=dialect)


def server_index(name: str, *columns: Any, where: ColumnElement[bool] | None = None) -> Index:
    """An index on Postgres only."""
    return index_on_one("postgresql", name, *columns, where=where)


def file_index(name: str, *columns: Any) -> Index:
    """An index on SQLite only."""
    return index_on_one("sqlite", name, *columns)


def containment_index(name: str, column: ColumnElement[Any]) -> Index:
    """An index over all members of a JSON object column, on Postgres only (once `complete_indexes` has run)."""
    return Index(name, column, info={"dialect": "postgresql", "using": "gin"}).ddl_if(dialect="postgresql")


def complete_indexes(metadata: MetaData) -> None:
    """Give every index its Postgres options, after all tables are declared: SQLAlchemy would else import its Postgres dialect."""
    for table in metadata.tables.values():
        for index in table.indexes:
            if index.info.get("using") == "gin":
                index.dialect_kwargs["postgresql_using"] = "gin"
                index.dialect_kwargs["postgresql_ops"] = {column.name: "jsonb_path_ops" for column in index.columns}
            where = index.dialect_kwargs.get("sqlite_where")
            if where is not None:
                index.dialect_kwargs["postgresql_where"] = where
