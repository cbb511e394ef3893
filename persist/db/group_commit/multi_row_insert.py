"""Many rows in one INSERT, for Postgres: sending them row by row costs the driver and the server twice as much."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import JSON, BindParameter, Insert, Text, bindparam, cast, column, func, insert, select
from sqlalchemy.sql import visitors

from persist.db.statements.prepared import Driver, Statement, StatementCache

_ROWS = "rows"


class MultiRowInsert:
    """An `INSERT … SELECT` of parameters `WHERE …`, for many rows: all of them are written, or none.

    The rows travel as the text of a JSON array, which costs less than the driver's arrays.
    """

    def __init__(self, prepared: Statement, compiled: StatementCache) -> None:
        self._single, self._whole = compiled[prepared], compiled[_whole(prepared)]

    def run(self, driver: Driver, rows: Sequence[Mapping[str, Any]]) -> int:
        """Execute the INSERT. Return the number of rows written: all of them, or 0."""
        names, args = self._single.names, self._single.args
        text = orjson.dumps([dict(zip(names, args(row), strict=True)) for row in rows]).decode()
        return self._whole.run(driver, {_ROWS: text})


class MultiRowInserts:
    """The multi-row INSERTs of one connection, each made when it is first needed."""

    def __init__(self, compiled: StatementCache) -> None:
        self._compiled = compiled
        self._made: dict[Statement, MultiRowInsert] = {}

    def run(self, prepared: Statement, driver: Driver, rows: Sequence[Mapping[str, Any]]) -> int:
        """Execute the multi-row form of the statement. Return the number of rows written: all of them, or 0."""
        made = self._made.get(prepared)
        if made is None:
            made = self._made[prepared] = MultiRowInsert(prepared, self._compiled)
        return made.run(driver, rows)


@lru_cache(maxsize=64)
def _whole(prepared: Statement) -> Statement:
    statement: Any = prepared.statement
    return Statement(_of_rows(statement))


def _of_rows(statement: Insert) -> Insert:
    chosen: Any = statement.select
    parameters = [bind for bind in visitors.iterate(chosen) if isinstance(bind, BindParameter) and bind.required]
    kinds = {bind.key: bind.type for bind in parameters}
    rows = func.json_to_recordset(cast(bindparam(_ROWS, type_=Text()), JSON()))
    table = rows.table_valued(*(column(name, kind) for name, kind in kinds.items()), name="sent")
    given = select(*table.render_derived(with_types=True).c).cte("given")
    moved: Any = visitors.replacement_traverse(
        chosen, {}, lambda element, **_: given.c[element.key] if isinstance(element, BindParameter) and element.required else None
    )
    every = select(func.every(moved.whereclause)).select_from(given).correlate(None).scalar_subquery()
    names = [getattr(name, "key", name) for name in statement._select_names or ()]
    return insert(statement.table).from_select(names, select(*moved.selected_columns).select_from(given).where(every))
