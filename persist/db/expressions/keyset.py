"""The condition by which a list goes on: the rows behind a place in its order."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, tuple_
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import ScalarSelect


def behind(
    columns: Sequence[ColumnElement[Any]],
    place: Sequence[str | ColumnElement[Any]] | ScalarSelect[Any],
    *,
    descending: bool = False,
    inclusive: bool = False,
) -> ColumnElement[bool]:
    """Whether a row comes behind a place in the order of these columns, all of which ascend, or all descend.

    `place`: for each column the name of a parameter or an expression; or a query of one row. `inclusive`: the row at the place
    itself, too.
    """
    key: ColumnElement[Any] = tuple_(*columns)
    last: ColumnElement[Any] = place if isinstance(place, ScalarSelect) else _tuple_of(columns, place)
    if descending:
        return key <= last if inclusive else key < last
    return key >= last if inclusive else key > last


def _tuple_of(columns: Sequence[ColumnElement[Any]], place: Sequence[str | ColumnElement[Any]]) -> ColumnElement[Any]:
    given = zip(columns, place, strict=True)
    return tuple_(*(bindparam(value, type_=column.type) if isinstance(value, str) else value for column, value in given))
