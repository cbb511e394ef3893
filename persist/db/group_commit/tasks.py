"""Write tasks that a recorder hands to a pinned connection, and their outcomes."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import orjson
from sqlalchemy import JSON, BindParameter, Text, bindparam, cast, column, func, insert, select
from sqlalchemy.sql import visitors

from persist.db.changes.batch import DriverStatements, StatementRunner
from persist.db.observation import TurnTrace
from persist.db.statements.prepared import CompiledStatement, Driver, Statement, StatementCache
from persist.errors import PersistError

# Many rows in one INSERT, for Postgres: sending them row by row costs the driver and the server twice as much.

_ROWS = "rows"


class MultiRowInserts:
    """A connection's `INSERT … SELECT … WHERE …` of many rows or none, sent as JSON text, which is cheaper than arrays."""

    def __init__(self, compiled: StatementCache) -> None:
        self._compiled = compiled
        self._made: dict[Statement, tuple[CompiledStatement, CompiledStatement]] = {}
        """The compiled statement of one row, and that of many."""

    def run(self, prepared: Statement, driver: Driver, rows: Sequence[Mapping[str, Any]]) -> int:
        """Execute the multi-row form of the statement. Return the number of rows written: all of them, or 0."""
        made = self._made.get(prepared)
        if made is None:
            made = self._made[prepared] = (self._compiled[prepared], self._compiled[_all_or_none(prepared)])
        single, whole = made
        text = orjson.dumps([dict(zip(single.names, single.args(row), strict=True)) for row in rows]).decode()
        return whole.run(driver, {_ROWS: text})


@lru_cache(maxsize=64)
def _all_or_none(prepared: Statement) -> Statement:
    statement: Any = prepared.statement
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
    return Statement(insert(statement.table).from_select(names, select(*moved.selected_columns).select_from(given).where(every)))


R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class WriteTask(Protocol[R_co]):
    """Statements to run on the driver connection. A replayed group runs the task twice, so it must change nothing else."""

    @property
    def single(self) -> bool:
        """Whether the task is one statement, which a database with autocommit makes durable by itself."""

    def run(self, db: DriverStatements, /) -> R_co:
        """Run the statements; an exception rolls them back."""

    @property
    def refusal(self) -> Callable[[DriverStatements], PersistError] | None:
        """Returns the error to raise after a RequirementMissed, which rolled everything back."""


@dataclass(slots=True)
class FunctionTask(Generic[R]):
    """A task that calls a function with the statement runner."""

    run: Callable[[DriverStatements], R]
    single: bool = False
    refusal: Callable[[DriverStatements], PersistError] | None = None
    turn: TurnTrace | None = None
    """The turn that a tracer links with the task's transaction."""


class SingleRowInsert:
    """A task that writes a row by `INSERT … SELECT`, or raises `refusal`. A group runs equal statements in one call."""

    __slots__ = ("stream", "values")
    single = True
    prepared: ClassVar[Statement]
    name: ClassVar[str]
    """The name of the task's event, where the event log is on."""
    stream: str
    """The stream of the task's event."""
    values: Mapping[str, Any]

    def refusal(self, db: StatementRunner, /) -> PersistError:
        """Return the error that says why the row was not written."""
        raise NotImplementedError

    def run(self, db: DriverStatements, /) -> None:
        """Write the row as an event of its own; raise the refusal if it was not written."""
        if db.journal is not None:
            db.journal.begin_verb(self.name, self.stream)
        if db.write(self.prepared, self.values) != 1:
            raise self.refusal(db)

    def add(self, db: StatementRunner, /) -> None:
        """Write the row as part of a larger task and its event; raise the refusal if it was not written."""
        if db.run(self.prepared, **self.values) != 1:
            raise self.refusal(db)


def by_statement(rows: Sequence[SingleRowInsert]) -> Mapping[Statement, Sequence[Mapping[str, Any]]]:
    """Group the values of the rows by their prepared statement."""
    alike: defaultdict[Statement, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        alike[row.prepared].append(row.values)
    return alike


@dataclass(slots=True)
class Outcome(Generic[R]):
    """The result or the error of one task of a group."""

    result: R | None = None
    error: BaseException | None = None
