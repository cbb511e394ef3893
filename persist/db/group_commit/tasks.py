"""Write tasks that a recorder hands to a pinned connection, and their outcomes."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from persist.db.changes.driver_statements import DriverStatements, StatementRunner
from persist.db.observation.tracing import TurnTrace
from persist.db.statements.prepared import Statement
from persist.errors import PersistError

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class WriteTask(Protocol[R_co]):
    """Statements to run on the driver connection. It may run twice (a group is replayed), so it must change nothing else."""

    @property
    def single(self) -> bool:
        """Whether the task is one statement, which a database with autocommit makes durable by itself."""

    def run(self, db: DriverStatements, /) -> R_co:
        """Run the statements; an exception rolls them back."""

    @property
    def refusal(self) -> Callable[[DriverStatements], PersistError] | None:
        """Returns the error to raise after a RequirementMissed, which rolled everything back."""


@dataclass(frozen=True, slots=True)
class FunctionTask(Generic[R]):
    """A task that calls a function with the statement runner."""

    run: Callable[[DriverStatements], R]
    single: bool = False
    refusal: Callable[[DriverStatements], PersistError] | None = None
    turn: TurnTrace | None = None
    """The turn that a tracer links with the task's transaction."""


class SingleRowInsert(ABC):
    """A task that writes one row by an `INSERT … SELECT`. If no row was written, `refusal` finds out why.

    A group runs tasks with the same statement in one driver call.
    """

    __slots__ = ("stream", "values")
    single = True
    prepared: ClassVar[Statement]
    name: ClassVar[str]
    """The name of the task's event, where the event log is on."""
    stream: str
    """The stream of the task's event."""
    values: Mapping[str, Any]

    @abstractmethod
    def refusal(self, db: StatementRunner, /) -> PersistError:
        """Return the error that says why the row was not written."""

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
    error: BaseException | None = field(default=None)
