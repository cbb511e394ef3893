"""INSERT of one row under a condition, so that a statement of a batch writes nothing where an earlier one found nothing."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Insert, Table, bindparam, insert, select
from sqlalchemy.sql.elements import ColumnElement


def insert_where(
    table: Table,
    condition: ColumnElement[bool],
    values: Mapping[str, Any] | None = None,
    *,
    of: Table | None = None,
    lock: bool = False,
) -> Insert:
    """`INSERT … SELECT … WHERE condition`: a row of parameters named as their columns, except for the given `values`.

    `of`: a table whose one row the condition chooses; `lock`: that row is locked until the transaction ends.
    """
    columns = [column for column in table.columns if column.identity is None]
    given = values or {}
    row = select(*(given.get(column.name, bindparam(column.name, type_=column.type)) for column in columns)).where(condition)
    if of is not None:
        row = row.select_from(of)
    if lock:
        row = row.with_for_update(of=of)
    return insert(table).from_select([column.name for column in columns], row)
