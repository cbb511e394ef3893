"""Ranges of whole numbers that a JSON column holds as [[low, high], …], as rows of a query on Postgres."""

from typing import Any

from sqlalchemy import BigInteger, Numeric, Text, case, cast, func, literal_column
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import FromClause

from persist.db.values.counts import UNBOUNDED


def ranges_in(column: ColumnElement[Any]) -> tuple[FromClause, ColumnElement[int], ColumnElement[int]]:
    """(what to join with the column's table, its low end, its high end). No rows for other JSON, NULL for other ends."""
    is_list = func.jsonb_typeof(column, type_=Text()) == literal_column("'array'")
    ranges = func.jsonb_array_elements(case((is_list, column))).table_valued("value", name="ranges")
    return ranges, _end(ranges.c.value, 0), _end(ranges.c.value, 1)


def _end(value: ColumnElement[Any], place: int) -> ColumnElement[int]:
    item, text = (value.op(operator)(literal_column(str(place))) for operator in ("->", "->>"))
    number = case((func.jsonb_typeof(item, type_=Text()) == literal_column("'number'"), cast(text, Numeric)))
    return cast(func.least(func.greatest(number, literal_column("0")), literal_column(str(UNBOUNDED))), BigInteger)
