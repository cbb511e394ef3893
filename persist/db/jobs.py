"""What a recorder hands to a held connection to run, and what came of it."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from persist.db.hot import Hot, HotConnection, Statements
from persist.errors import PersistError

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Task(Protocol[R_co]):
    """Statements to run on the driver connection. It may run twice (a group is replayed), so it must change nothing else."""

    @property
    def single(self) -> bool:
        """It is one statement, which a database with autocommit makes durable by itself."""

    def run(self, db: HotConnection, /) -> R_co:
        """Run them; what it raises rolls them back."""


@dataclass(frozen=True, slots=True)
class Job(Generic[R]):
    """A task of whatever a function does."""

    run: Callable[[Statements], R]
    single: bool = False


class OneRow(ABC):
    """A task of one statement, an `INSERT … SELECT`, that writes one row, or else `refusal` finds out why it did not.

    A group runs those of the same statement in one call of the driver.
    """

    __slots__ = ("stream", "values")
    single = True
    hot: ClassVar[Hot]
    name: ClassVar[str]
    """Of its event, where the log of events is on."""
    stream: str
    """Of its event, too."""
    values: Mapping[str, Any]

    @abstractmethod
    def refusal(self, db: Statements, /) -> PersistError:
        """Why the row was not written."""

    def run(self, db: HotConnection, /) -> None:
        """Write the row."""
        if db.journal is not None:
            db.journal.open(self.name, self.stream)
        if db.write(self.hot, self.values) != 1:
            raise self.refusal(db)

    def add(self, db: Statements, /) -> None:
        """The same as part of a larger task."""
        if db.run(self.hot, **self.values) != 1:
            raise self.refusal(db)


def by_statement(rows: Sequence[OneRow]) -> Mapping[Hot, Sequence[Mapping[str, Any]]]:
    """The values of the rows of each statement."""
    alike: defaultdict[Hot, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        alike[row.hot].append(row.values)
    return alike


@dataclass(slots=True)
class Outcome(Generic[R]):
    """What became of one task of a group."""

    result: R | None = None
    error: BaseException | None = field(default=None)
