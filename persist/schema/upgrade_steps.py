"""Reads from the revisions what an upgrade does, step by step, without a database."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations, ops
from alembic.script import ScriptDirectory

from persist.db.dialects.upgrade_steps import Step, StepKind

_ALTERED = re.compile(r"\s*ALTER\s+TABLE\s+(\w+)", re.IGNORECASE)
_WRITTEN = re.compile(r"\s*(?:UPDATE|INSERT\s+INTO|DELETE\s+FROM)\s+(\w+)", re.IGNORECASE)


def steps_between(scripts: ScriptDirectory, found: str | None, to: str | None, dialect: str) -> list[Step]:
    """What the revisions after `found` (None: all) do, up to and with `to`, on a kind of database, in their order."""
    revisions = list(scripts.walk_revisions())[::-1]
    order = [script.revision for script in revisions]
    begin = order.index(found) + 1 if found in order else 0
    end = order.index(to) + 1 if to in order else 0
    recorded = [(script.revision, operation) for script in revisions[begin:end] for operation in _operations(script, dialect)]
    created = {operation.table_name for _, operation in recorded if isinstance(operation, ops.CreateTableOp)}
    return [step for revision, operation in recorded for step in _steps(revision, operation, created)]


def _operations(script: Any, dialect: str) -> list[Any]:
    """What a revision asks Alembic for; nothing of it is done."""
    seen: list[Any] = []
    with Operations.context(MigrationContext.configure(dialect_name=dialect, opts={"as_sql": True})) as recording:
        recording.invoke = seen.append  # type: ignore[method-assign,assignment]  # every operation passes through it
        with suppress(Exception):  # raised again, and reported, where the revision is run
            script.module.upgrade()
    return seen


def _steps(revision: str, operation: Any, created: set[str]) -> Iterator[Step]:
    def step(kind: StepKind, table: str | None, name: str | None = None) -> Step:
        return Step(revision, kind, table, name, table is not None and table not in created, operation)

    match operation:
        case ops.CreateTableOp():
            yield step(StepKind.CREATE_TABLE, operation.table_name)
        case ops.AddColumnOp():
            yield step(StepKind.ADD_COLUMN, operation.table_name, operation.column.name)
        case ops.CreateIndexOp():
            yield step(StepKind.CREATE_INDEX, operation.table_name, str(operation.index_name))
        case ops.DropIndexOp():
            yield step(StepKind.DROP_INDEX, operation.table_name, str(operation.index_name))
        case ops.CreateCheckConstraintOp():
            yield step(StepKind.ADD_CONSTRAINT, operation.table_name, str(operation.constraint_name))
            yield step(StepKind.VALIDATE, operation.table_name, str(operation.constraint_name))
        case ops.CreateForeignKeyOp():
            yield step(StepKind.ADD_CONSTRAINT, operation.source_table, str(operation.constraint_name))
            yield step(StepKind.VALIDATE, operation.source_table, str(operation.constraint_name))
        case ops.ExecuteSQLOp():
            text = str(operation.sqltext)
            if altered := _ALTERED.match(text):
                yield step(StepKind.CHANGE_SETTING, altered[1])
            else:
                written = _WRITTEN.match(text)
                yield step(StepKind.STATEMENT, written and written[1])
        case _:
            yield step(StepKind.STATEMENT, getattr(operation, "table_name", None))
