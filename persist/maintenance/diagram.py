"""The tables as a Mermaid entity-relationship diagram, drawn from the models."""

import re
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, ForeignKeyConstraint, LargeBinary, MetaData, Table
from sqlalchemy.types import BigInteger, Double, TypeDecorator, TypeEngine

from persist.errors import InvalidValue
from persist.quoting import shown
from persist.schema.metadata import domain_of
from persist.schema.metadata import metadata as ours

_PLAIN: dict[type[TypeEngine[Any]], str] = {BigInteger: "bigint", Double: "double", LargeBinary: "bytes"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def erd(metadata: MetaData | None = None, *, domain: str | None = None) -> str:
    """Return a Mermaid `erDiagram` with tables, columns, types (of `db.schema.column_types`), PK and FK marks, and references.

    `metadata`: the tables to draw; by default those of persist. `domain`: draw only its tables. Raises InvalidValue if unknown.
    """
    tables = sorted((metadata or ours).tables.values(), key=lambda table: table.name)
    if domain is not None:
        known = sorted({domain_of(table) for table in tables})
        if domain not in known:
            raise InvalidValue("domain", f"{shown(domain)} is none of {', '.join(known)}.")
        tables = [table for table in tables if domain_of(table) == domain]
    drawn = set(tables)
    lines = ["erDiagram"]
    for table in tables:
        lines += [f"    {_quoted(table.name)} {{", *(f"        {line}" for line in map(_column, table.columns)), "    }"]
    for table in tables:
        lines += [f"    {_relation(key)}" for key in _references(table) if key.referred_table in drawn]
    return "\n".join(lines) + "\n"


def _column(column: Column[object]) -> str:
    marks = [mark for mark, on in (("PK", column.primary_key), ("FK", bool(column.foreign_keys))) if on]
    return f"{_type(column.type)} {column.name} {', '.join(marks)}".rstrip()


def _type(kind: TypeEngine[object]) -> str:
    if isinstance(kind, TypeDecorator):
        return type(kind).__name__.lower()
    return next((word for plain, word in _PLAIN.items() if isinstance(kind, plain)), type(kind).__name__.lower())


def _references(table: Table) -> Iterator[ForeignKeyConstraint]:
    """Yield each reference once. If the dialects declare it with different foreign keys, yield the one with more columns."""
    keys = sorted(table.foreign_key_constraints, key=lambda key: tuple(key.column_keys))
    for key in keys:
        wider = [other for other in keys if other.referred_table is key.referred_table]
        if not any(set(key.column_keys) < set(other.column_keys) for other in wider):
            yield key


def _relation(key: ForeignKeyConstraint) -> str:
    """Draw a foreign key: parent left, child right. A nullable key has an optional parent; a primary key at most one child."""
    parent = "|o" if any(column.nullable for column in key.columns) else "||"
    child = "o|" if set(key.columns) == set(key.table.primary_key.columns) else "o{"
    return f'{_quoted(key.referred_table.name)} {parent}--{child} {_quoted(key.table.name)} : "{", ".join(key.column_keys)}"'


def _quoted(name: str) -> str:
    return name if _NAME.fullmatch(name) else f'"{name}"'
