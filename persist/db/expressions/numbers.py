"""Numbers in SQL: the next one of a row, sums that saturate instead of failing, and the UTC day or hour of an instant."""

from typing import Any, Literal

from sqlalchemy import BigInteger, ColumnElement, Text, cast, func, literal_column
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.visitors import InternalTraversal

from persist.db.sqlalchemy_private import made_of, written_as
from persist.db.values.arguments import UNBOUNDED


def next_number(column: ColumnElement[Any]) -> ColumnElement[int]:
    """The number after the highest of the rows, 1 without any. A fraction, which SQLite may hold, is cut off."""
    return func.coalesce(cast(func.max(column), BigInteger), literal_column("0")) + literal_column("1")


def has_next(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """A condition that leaves out rows whose number is not counted on from; in SQLite texts and blobs are higher than numbers."""
    return column < literal_column(str(UNBOUNDED))


_MAX = 2**63 - 1


@made_of(columns=InternalTraversal.dp_clauseelement_tuple)
class whole_total(ColumnElement[int]):  # noqa: N801  # reads as the SQL function it stands for
    """The sum over all rows and these columns; NULL counts as 0, and the result is at most 2**63-1."""

    type = BigInteger()

    def __init__(self, *columns: ColumnElement[Any]) -> None:
        self.columns = columns


@compiles(whole_total, "sqlite")
def _whole_total_lite(element: whole_total, compiler: SQLCompiler, **kw: Any) -> str:
    """The sum of upper and lower 32 bits, exact as floats. Beyond 64 bits SQLite's sum() fails, and total() loses digits."""
    row = " + ".join(f"coalesce({compiler.process(column, **kw)}, 0)" for column in element.columns)
    high, low = (f"CAST(total(({row}) {half}) AS INTEGER)" for half in (">> 32", f"& {2**32 - 1}"))
    return f"min({high} * {2**32} + {low}, {_MAX})"


@compiles(whole_total, "postgresql")
def _whole_total_pg(element: whole_total, compiler: SQLCompiler, **kw: Any) -> str:
    sums = " + ".join(f"coalesce(sum({compiler.process(column, **kw)}), 0)" for column in element.columns)
    return f"CAST(least({sums}, {_MAX}) AS BIGINT)"


Size = Literal["day", "hour"]

_LETTERS = {"day": len("2026-01-02"), "hour": len("2026-01-02T03")}
_FORMATS = {"day": "YYYY-MM-DD", "hour": 'YYYY-MM-DD"T"HH24'}


@written_as(sqlite="substr({column}, 1, {letters})", postgresql="to_char({column} AT TIME ZONE 'UTC', '{format}')")
@made_of(column=InternalTraversal.dp_clauseelement, size=InternalTraversal.dp_string)
class utc_bucket(ColumnElement[str]):  # noqa: N801  # reads as the SQL function it stands for
    """The UTC day (`YYYY-MM-DD`) or hour (`YYYY-MM-DDTHH`) of an IsoMs column, as text."""

    type = Text()

    def __init__(self, column: ColumnElement[Any], size: Size) -> None:
        self.column, self.size = column, size
        self.letters, self.format = _LETTERS[size], _FORMATS[size]
