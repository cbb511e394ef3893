"""LIKE with a pattern that is a parameter.

A parameter that is the pattern by itself would make SQLite compile the statement at each execution: a pattern may begin with a
prefix that an index finds.
"""

from typing import Any

from sqlalchemy import bindparam
from sqlalchemy.sql.elements import ColumnElement

from persist.db.schema.column_types import FreeText


def like(column: ColumnElement[Any], name: str, *, escape: str | None = None) -> ColumnElement[bool]:
    """Whether the column's text matches the pattern in the parameter `name`."""
    return column.like(bindparam(name, type_=FreeText()).concat(""), escape=escape)
