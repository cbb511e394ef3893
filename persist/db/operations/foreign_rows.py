"""Rows of other programs' tables that refer to rows of persist, and so keep these from being deleted.

Where such a reference says ON DELETE CASCADE or SET NULL, the database does what it says, and nothing is in the way.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Table, column, func, select
from sqlalchemy import table as table_named
from sqlalchemy.sql.elements import ColumnElement

from persist.db.dialects.backends import operations_of
from persist.db.dialects.operations import ForeignReference
from persist.db.operations.bounded_deletion import row_value
from persist.db.statements.refused_deletions import noted_deletions
from persist.db.transactions.dry_run import REFERRED
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import Conflict, PersistError

log = logging.getLogger("persist")


def explained(work: UnitOfWork, error: Conflict) -> Conflict:
    """The error of a refused deletion, with what refers to the rows: table, column and how many rows. Else the same error.

    `work`: a transaction in which nothing of the deletion is left. An error that this meets is not raised.
    """
    deletions = noted_deletions(error)
    if not deletions or work.runtime.errors.code_of(error) not in REFERRED:
        return error
    found: Counter[str] = Counter()
    try:
        tables = [*work.runtime.tables()]
        references = operations_of(work.runtime.dialect).foreign_references(work.select, tables)
        for statement, values in deletions if references else ():
            if statement.whereclause is not None and isinstance(statement.table, Table):
                found += _direct(work, references, tables, statement.table, statement.whereclause, values)
    except Exception as other:
        log.warning("what refers to the rows cannot be said: %s", type(other).__name__)
    if not found:
        return error
    listed = "; ".join(f"{name} ({count:,})" for name, count in found.items())
    return Conflict(f"The database refuses the deletion because of {listed}. These go first.", constraint=error.constraint)


def in_the_way(
    work: UnitOfWork,
    references: Sequence[ForeignReference],
    tables: Sequence[Table],
    table: Table,
    condition: ColumnElement[bool],
) -> Counter[str]:
    """How many rows refer to those rows of a table that meet the condition, or to rows below them, by what they are called.

    `references`: those that refuse a deletion. Where none refers to such a row, but to what belongs to it without a foreign key,
    such as a session's messages, each counts as one. So does a table that may not be read.
    """
    found = _direct(work, references, tables, table, condition, {})
    if not found.total():
        whole = {of.name: of for of in tables}
        found.update({name_of(one): min(1, _count(work, one, _keys(one, whole[one.parent]), {})) for one in references})
    return +found


def _direct(
    work: UnitOfWork,
    references: Sequence[ForeignReference],
    tables: Sequence[Table],
    table: Table,
    condition: ColumnElement[bool],
    values: Mapping[str, Any],
) -> Counter[str]:
    """The counts of `in_the_way` by foreign keys alone. `values`: the parameters of the condition."""
    found: Counter[str] = Counter()
    for below, of in _below(tables, table, condition):
        for one in references:
            if one.parent == below.name:
                found[name_of(one)] += _count(work, one, _keys(one, below).where(of), values)
    return +found


def name_of(one: ForeignReference) -> str:
    """What rows with such a reference are called in a report."""
    where = one.table if one.schema is None else f"{one.schema}.{one.table}"
    return f"{where}: rows that refer to {one.parent} by {', '.join(one.columns)}"


def _below(tables: Sequence[Table], table: Table, condition: ColumnElement[bool]) -> Iterator[tuple[Table, ColumnElement[bool]]]:
    """The table with the condition of its rows, and every table with rows that refer to these, directly or not."""
    yield table, condition
    for child in tables:
        for key in child.foreign_key_constraints if child is not table else ():
            if key.referred_table is table:
                own, theirs = [*key.columns], [element.column for element in key.elements]
                these = select(*theirs).where(condition)
                yield from _below(tables, child, row_value(own).in_(these))


def _keys(one: ForeignReference, table: Table) -> Any:
    return select(*(table.c[name] for name in one.parent_columns))


def _count(work: UnitOfWork, one: ForeignReference, keys: Any, values: Mapping[str, Any]) -> int:
    own: list[ColumnElement[Any]] = [column(name) for name in one.columns]
    theirs = table_named(one.table, *own, schema=one.schema)  # type: ignore[arg-type]  # they are columns without a table
    referring = select(func.count()).select_from(theirs).where(row_value(own).in_(keys))
    point = work.savepoint()
    try:
        count = int(work.select(referring, values).scalar() or 0)
    except Exception as error:
        point.rollback()
        if not isinstance(work.runtime.translate(error), PersistError):
            raise
        return 1
    point.commit()
    return count
