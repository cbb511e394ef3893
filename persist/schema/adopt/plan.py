"""Compares a file's catalog with that of the models and plans the changes, also of cells that may not stay empty."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import CheckConstraint, ColumnElement, func, literal, select, type_coerce
from sqlalchemy import Column as ModelColumn
from sqlalchemy import Table as Model
from sqlalchemy.types import NullType

from persist.db.dialects.sqlite.parsed_ddl import Catalog, Column, Index, Table
from persist.db.formats import constant_of, instants_for, tells_apart
from persist.db.operations.upkeep import Rules, Takeover
from persist.db.statements.schema_version import OWN_SCOPES
from persist.domains import upkeeps
from persist.errors import UnmanagedDatabase
from persist.schema.metadata import domain_of

ALL = {name: rules for name, upkeep in sorted(upkeeps().items()) if (rules := upkeep.adoption) is not None}
_NONE = Rules()


def rules_of(table: Model) -> Rules:
    """The adoption rules of the table's domain; empty rules for a domain without any."""
    return ALL.get(domain_of(table), _NONE)


READ_AS_NONE = "values that are not there, where a new file has to have one: they are read as None"
NOT_COPIED = "rows without what they are found by: no copy takes them"


def may_be_empty(model: Model, found: Table) -> list[ModelColumn[Any]]:
    """The columns that a new file has NOT NULL, and that may be NULL in this one."""
    theirs = found.columns
    return [c for c in model.columns if not c.nullable and c.name in theirs and not theirs[c.name].not_null]


def value_for(column: ModelColumn[Any]) -> ColumnElement[Any] | None:
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


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned schema changes: models whose tables are missing, missing columns by model, and tables to rebuild."""

    missing: Sequence[Model]
    columns: Sequence[tuple[Model, Column]]
    rebuilds: Sequence[tuple[Model, Sequence[str]]]


def plan(models: Sequence[Model], expected: Catalog, found: Catalog) -> Plan:
    """Plan the changes. UnmanagedDatabase names the tables that are not persist's, and how they differ."""
    missing = [model for model in models if model.name not in found.tables]
    brought = [(model, expected.tables[model.name], found.tables[model.name]) for model in models if model not in missing]
    refused = [model.name for model in missing if model.name in found.taken]
    reasons = [f"{name} is no table" for name in refused]
    for model, ours, theirs in brought:
        different = list(_differences(ours, theirs, rules_of(model), model))
        reasons += different
        refused += [model.name] if different else []
    if refused:
        raise UnmanagedDatabase(
            refused, reason=f"Tables of these names are not the ones that persist knows: {'; '.join(reasons)}"
        )
    columns = [
        (model, column) for model, ours, theirs in brought for name, column in ours.columns.items() if name not in theirs.columns
    ]
    rebuilds = [
        (model, unique)
        for model, _, theirs in brought
        for unique in [rules_of(model).too_unique.get(model)]
        if unique is not None and any(index.declared and set(index.terms) == set(unique) for index in theirs.indexes)
    ]
    return Plan(missing, columns, rebuilds)


def _differences(ours: Table, theirs: Table, rules: Rules, model: Model) -> Iterator[str]:
    own_key = [name for name in ours.key if name not in OWN_SCOPES]
    lacking = [name for name in own_key if name not in theirs.columns]
    if lacking:
        yield f"{model.name} has no {', '.join(lacking)}"
        return
    accepted = [set(own_key), set(ours.key), *map(set, rules.other_keys.get(model, ())), *([set()] if not own_key else [])]
    is_unique = any(index.unique and not index.where and set(index.terms) == set(own_key) for index in theirs.indexes)
    if set(theirs.key) not in accepted and not is_unique:
        yield f"{model.name} has the key ({', '.join(theirs.key)}) instead of ({', '.join(own_key)})"
    for name in own_key:
        if ours.columns[name].whole != theirs.columns[name].whole:
            yield f"{model.name}.{name} is {theirs.columns[name].type or 'untyped'} and not {ours.columns[name].type}"
    valued, written = (
        {c.name for c in rules.values if c.table is model},
        {c.name for c in rules.always_written if c.table is model},
    )
    for name, column in ours.columns.items():
        if name not in theirs.columns and column.not_null and column.default is None and name not in valued:
            yield f"{model.name} has no {name}"
    for name, column in theirs.columns.items():
        ours_too = ours.columns.get(name)
        if ours_too is None:
            if column.not_null and column.default is None and not column.key:
                yield f"{model.name}.{name} must be given in every row"
        elif column.not_null and not (ours_too.not_null or ours_too.key or name in written):
            yield f"{model.name}.{name} may not be NULL"


def checks_on(model: Model, column: Column, added: Sequence[str]) -> list[str]:
    """The CHECKs to add with a column: the CHECKs that name it and no later column."""
    later = set(added[added.index(column.name) + 1 :])
    found = []
    for constraint in model.constraints:
        if isinstance(constraint, CheckConstraint):
            words = set(re.findall(r"\w+", str(constraint.sqltext)))
            if column.name in words and not words & later:
                found.append(str(constraint.sqltext))
    return sorted(found)


def missing_indexes(ours: Table, theirs: Table) -> list[Index]:
    """The indexes that the table lacks under any name: first unique indexes for the model's keys, then the others."""
    keys = [_as_index(ours, ours.key)] if ours.key else []
    keys += [_as_index(ours, index.terms) for index in ours.indexes if index.declared]
    needed = [key for key in dict.fromkeys(keys) if set(theirs.key) != set(key.terms)]
    needed += [index for index in ours.indexes if not index.declared]
    return [index for index in needed if not any(other.serves_as(index) for other in theirs.indexes)]


def _as_index(table: Table, names: Sequence[str]) -> Index:
    listed = ", ".join(f'"{name}"' for name in names)
    return Index(f"uq_{table.name}_{'_'.join(names)}", True, True, tuple(names), "", f"({listed})")
