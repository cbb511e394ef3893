"""What an upgrade would do to a database, which stays as it is: its steps as they are done, with locks and sizes."""

from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from persist.db.dialects.backends import operations_of
from persist.db.dialects.interface import Dialect
from persist.db.dialects.upgrade_steps import Step, StepKind, afterwards, locks_of
from persist.schema import migrate
from persist.schema.metadata import HEAD
from persist.schema.revision import found_revision
from persist.schema.upgrade_steps import steps_between


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of an upgrade. `bytes`: the size of its table with the indexes, None of a table that the upgrade makes."""

    revision: str
    phase: int
    step: str
    lock: str
    table: str | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of an upgrade from a revision (None: the tables are made) to that of this code, without those that are done.

    Those of phase 1 are one transaction, which is undone whole if it fails. Those of phase 2 are done one by one.
    """

    found: str | None
    revision: str
    steps: list[PlannedStep]

    def as_json(self) -> dict[str, Any]:
        return {"from": self.found, "revision": self.revision, "steps": [asdict(step) for step in self.steps]}


def plan(url: str | PathLike[str], *, schema: str | None = None) -> Plan:
    """The plan of `persist upgrade`."""
    return migrate.look(url, schema, _plan)


def _plan(connection: Connection, dialect: Dialect) -> Plan:
    found = found_revision(connection, dialect)
    scripts = ScriptDirectory.from_config(migrate.config())
    steps = [
        step
        for step in steps_between(scripts, found, HEAD, dialect.name)
        if step.kind != StepKind.STATEMENT or step.table != "_meta"
    ]
    operations = operations_of(dialect)
    sizes = operations.table_facts(connection.execute) if found is not None else {}
    apart = operations.left_of(connection, [] if dialect.one_file else afterwards(steps))
    first = operations.left_of(connection, [step for step in steps if dialect.one_file or not step.afterwards])

    def planned(step: Step, phase: int) -> PlannedStep:
        lock = "the file, until all is done" if dialect.one_file else locks_of(step)
        size = sizes.get(step.table or "", {}).get("bytes") if step.existing else None
        return PlannedStep(step.revision, phase, str(step), lock, step.table, size)

    return Plan(found, HEAD, [*[planned(step, 1) for step in first], *[planned(step, 2) for step in apart]])
