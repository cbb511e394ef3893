"""The condition by which a list goes on: the rows behind a place in its order."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, bindparam, or_, tuple_
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import ScalarSelect


def behind(
    columns: Sequence[ColumnElement[Any]],
    place: Sequence[str | ColumnElement[Any]] | ScalarSelect[Any],
    *,
    descending: bool = False,
    inclusive: bool = False,
) -> ColumnElement[bool]:
    """Whether a row comes behind `place`, a term per column or a query of one row, in columns that all ascend or all descend."""
    key = _row(columns)
    last = place if isinstance(place, ScalarSelect) else _row(_terms(columns, place))
    if descending:
        return key <= last if inclusive else key < last
    return key >= last if inclusive else key > last


def behind_newest(columns: Sequence[ColumnElement[Any]], place: Sequence[str]) -> ColumnElement[bool]:
    """Whether a row comes behind a place in an order of which the first column descends and the second one ascends."""
    (first, second), (first_last, second_last) = columns, _terms(columns, place)
    return or_(first < first_last, and_(first == first_last, second > second_last))


def _row(terms: Sequence[ColumnElement[Any]]) -> ColumnElement[Any]:
    return terms[0] if len(terms) == 1 else tuple_(*terms)


def _terms(columns: Sequence[ColumnElement[Any]], place: Sequence[str | ColumnElement[Any]]) -> list[ColumnElement[Any]]:
    given = zip(columns, place, strict=True)
    return [bindparam(value, type_=column.type) if isinstance(value, str) else value for column, value in given]
