"""The steps of an upgrade: the kind and the table of each, and whether others may write during the step."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class StepKind(StrEnum):
    """What a step does."""

    CREATE_TABLE = "create table"
    ADD_COLUMN = "add column"
    CREATE_INDEX = "create index"
    DROP_INDEX = "drop index"
    ADD_CONSTRAINT = "add constraint, unchecked"
    VALIDATE = "check rows against constraint"
    CHANGE_SETTING = "change a setting of"
    STATEMENT = "run a statement"


_LOCKS = {
    StepKind.CREATE_TABLE: "none: nobody uses the table yet",
    StepKind.ADD_COLUMN: "ACCESS EXCLUSIVE, for a moment: no row is touched",
    StepKind.CREATE_INDEX: "SHARE UPDATE EXCLUSIVE: readers and writers go on",
    StepKind.DROP_INDEX: "SHARE UPDATE EXCLUSIVE: readers and writers go on",
    StepKind.ADD_CONSTRAINT: "ACCESS EXCLUSIVE, for a moment: no row is looked at",
    StepKind.VALIDATE: "SHARE UPDATE EXCLUSIVE: readers and writers go on",
    StepKind.CHANGE_SETTING: "at most ACCESS EXCLUSIVE, for a moment: no row is touched",
    StepKind.STATEMENT: "ROW EXCLUSIVE: the rows it changes",
}
_AFTERWARDS = {StepKind.CREATE_INDEX, StepKind.DROP_INDEX, StepKind.VALIDATE}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a revision.

    table      the table it works on; None of a statement that names none
    name       of the column, index or constraint
    existing   whether the table was there before the upgrade, and may be large
    operation  Alembic's description of the step
    """

    revision: str
    kind: StepKind
    table: str | None
    name: str | None
    existing: bool
    operation: Any

    @property
    def afterwards(self) -> bool:
        """Whether it reads a whole table that others write to: then it needs no transaction and is done after all the others."""
        return self.existing and self.kind in _AFTERWARDS

    def __str__(self) -> str:
        where = self.table or "the database"
        if self.kind == StepKind.CREATE_INDEX or self.kind == StepKind.DROP_INDEX:
            return f"{self.kind} {self.name} on {where}"
        if self.kind == StepKind.STATEMENT:
            return f"{self.kind} on {where}"
        return f"{self.kind} {where}{f'.{self.name}' if self.name else ''}"


def afterwards(steps: Iterable[Step]) -> list[Step]:
    """The steps after the transaction, without an index that a later step drops again."""
    late = [step for step in steps if step.afterwards]
    dropped: dict[str | None, int] = {step.name: at for at, step in enumerate(late) if step.kind == StepKind.DROP_INDEX}
    return [step for at, step in enumerate(late) if not (step.kind == StepKind.CREATE_INDEX and at < dropped.get(step.name, -1))]


def locks_of(step: Step) -> str:
    """What others wait for while the step is done."""
    if not step.existing:
        return "none: nobody uses the table yet"
    return _LOCKS[step.kind]


def existing_tables(steps: Iterable[Step]) -> Collection[str]:
    """The tables that were there before the upgrade, as far as its steps name them."""
    return {step.table for step in steps if step.table is not None and step.existing}
