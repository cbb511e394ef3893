"""Inserting an execution, once for each idempotency key."""

from typing import Any

from sqlalchemy import select

from persist.db.expressions.upsert import insert_missing, taken
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import Conflict
from persist.workflows.models import executions
from persist.workflows.schemas import Execution
from persist.workflows.storage.execution_rows import EXECUTION

_E = executions.c
_INSERT = Statement(insert_missing(executions).returning(*EXECUTION.columns))
_BY_KEY = Statement(select(*EXECUTION.columns).where(_E.idempotency_key == param("key"), _E.idempotency_key.is_not(None)))


def insert_execution(work: UnitOfWork, id: str, fields: dict[str, Any]) -> Execution:
    """Insert the execution, or return the one that its idempotency key began. Raises Conflict."""
    with work.batch(last=True) as batch:
        inserted = batch.returned(_INSERT, **inserted_row(id, fields))
    if inserted.result is not None:
        return EXECUTION(inserted.result)
    key = fields.get("idempotency_key")
    row = None if key is None else work.row(_BY_KEY, key=key)
    if row is None:
        raise taken(_INSERT, "execution", id)
    found = EXECUTION(row)
    if any(getattr(found, name) != fields[name] for name in ("skill", "trigger_id", "workflow_run_id")):
        raise Conflict(
            f"The idempotency key {key!r} began the execution {found.id!r} of another skill, trigger or run.",
            constraint="ix_executions_idempotency_key",
        )
    return found


def inserted_row(id: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Every column of a new execution."""
    return {**dict.fromkeys(EXECUTION.fields), "output_text": None, **fields, "id": id}
