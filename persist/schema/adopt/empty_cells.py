"""Cells of an adopted file that hold nothing where a new file must hold something: the rule by which they get a value."""

from typing import Any

from sqlalchemy import Column, ColumnElement, func, literal, select, type_coerce
from sqlalchemy import Table as Model
from sqlalchemy.types import NullType

from persist.db.dialects.sqlite.parsed_ddl import Table
from persist.db.formats import constant_of, instants_for, tells_apart
from persist.db.operations.upkeep import Rules, Takeover
from persist.domains import upkeeps
from persist.schema.metadata import domain_of

ALL = {name: rules for name, upkeep in sorted(upkeeps().items()) if (rules := upkeep.adoption) is not None}
_NONE = Rules()


def rules_of(table: Model) -> Rules:
    """The adoption rules of the table's domain; empty rules for a domain without any."""
    return ALL.get(domain_of(table), _NONE)


READ_AS_NONE = "values that are not there, where a new file has to have one: they are read as None"
NOT_COPIED = "rows without what they are found by: no copy takes them"


def may_be_empty(model: Model, found: Table) -> list[Column[Any]]:
    """The columns that a new file has NOT NULL, and that may be NULL in this one."""
    theirs = found.columns
    return [c for c in model.columns if not c.nullable and c.name in theirs and not theirs[c.name].not_null]


def value_for(column: Column[Any]) -> ColumnElement[Any] | None:
    """The value for an empty cell of the column: by its domain's rule, its default, or the known instants of the row."""
    if tells_apart(column):
        return None
    terms: list[ColumnElement[Any]] = []
    if (ruled := rules_of(column.table).values.get(column)) is not None:
        terms.append(ruled)
    if (constant := constant_of(column)) is not None:
        terms.append(literal(constant))
    terms += [type_coerce(other, NullType()) for other in instants_for(column)]
    return func.coalesce(*terms, None) if terms else None


def notice_empty(takeover: Takeover, model: Model, found: Table) -> None:
    """Add a notice to the report for each column with cells that no rule gave a value."""
    columns = may_be_empty(model, found)
    if columns:
        counts = [func.count() - func.count(type_coerce(column, NullType())) for column in columns]
        ((*empty,),) = takeover.rows(select(*counts).select_from(model))
        for column, count in zip(columns, empty, strict=True):
            found_by = tells_apart(column) or column.foreign_keys
            takeover.notice(f"{model.name}.{column.name}", NOT_COPIED if found_by else READ_AS_NONE, count)
