"""Ending an execution: which columns a call replaces, and which keep their values."""

from collections.abc import Callable
from typing import Any, TypedDict

from sqlalchemy import bindparam, func, select, update

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_flag, optional_cost, optional_count, optional_label
from persist.db.values.json import Json, encode
from persist.errors import InvalidValue
from persist.usage.schemas import Source
from persist.usage.writing import MOST, Call, keyed, micros, window_of, write
from persist.workflows.models import executions, runs

_E = executions.c
_id = param("row_id")
_OVERWRITTEN = ("success", "error", "turns", "duration_ms")
_KEPT = (
    "session_id",
    "cost_usd",
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "api_duration_ms",
    "stop_reason",
    "extension_status",
)
"""The columns that `finish` leaves unchanged if they are not given."""

FINISH = Statement(
    update(executions)
    .where(_E.id == _id)
    .values(
        {
            "finished_at": param("at"),
            **{name: param(f"set_{name}") for name in _OVERWRITTEN},
            **{name: func.coalesce(bindparam(f"set_{name}", type_=_E[name].type), _E[name]) for name in _KEPT},
        }
    )
)
"""End the execution of an id with the values of `end_values`."""

SET_OUTPUT = Statement(update(executions).where(_E.id == _id).values(output_text=param("value")))
"""Store the final text of the execution of an id."""


_ENDING = Statement(
    select(_E.finished_at, _E.skill, _E.workflow_run_id, runs.c.workflow_name, runs.c.concurrency_key)
    .select_from(executions.outerjoin(runs, runs.c.id == _E.workflow_run_id))
    .where(_E.id == _id)
)


def end_values(work: UnitOfWork, *, success: bool, error: str | None, **totals: Any) -> dict[str, Any]:
    """The values for FINISH. `totals`: those of `executions.finish` that were given. Raises InvalidValue."""
    given: dict[str, Any] = {
        **dict.fromkeys((*_OVERWRITTEN, *_KEPT)),
        "success": check_flag("success", success),
        "error": None if error is None else work.body("error", error),
    }
    given |= {name: check_total(work.runtime, name, value) for name, value in totals.items() if value is not None}
    return {"at": work.now(), **{f"set_{name}": value for name, value in given.items()}}


class Totals(TypedDict, total=False):
    """What an execution used and how it went: `executions.finish` and `phases.finish` say more."""

    turns: int | None
    duration_ms: int | None
    cost_usd: float | None
    input_tokens: int | None
    output_tokens: int | None
    cache_creation_input_tokens: int | None
    cache_read_input_tokens: int | None
    api_duration_ms: int | None
    session_id: str | None
    stop_reason: str | None
    extension_status: Json
    model: str | None
    provider: str | None


def check_total(runtime: Runtime, name: str, value: Any) -> Any:
    """The value as it is stored. Raises InvalidValue for a name that is none of Totals, and for a value of another kind."""
    if name not in Totals.__annotations__:
        raise InvalidValue(name, f"no execution has that; it has {', '.join(Totals.__annotations__)}.")
    if name == "extension_status":
        return encode(value, name, runtime.limits)
    return _CHECKS.get(name, optional_count)(name, value)


def count_usage(work: UnitOfWork, execution_id: str, model: str, values: dict[str, Any], *, provider: str | None) -> None:
    """Count what an execution used as a call of a model, unless it had ended before. `values`: those of `end_values`."""
    row = work.row(_ENDING, row_id=execution_id)
    if row is None or row[0] is not None:
        return
    _, skill, run_id, workflow, concurrency_key = row
    used = {ours: values[f"set_{theirs}"] for ours, theirs in _FIGURES.items()}
    call = Call.of(
        work,
        Source.RUN,
        execution_id if run_id is None else run_id,
        values["at"],
        model,
        **{name: None if value is None else min(value, MOST) for name, value in used.items()},
        cost_usd_micros=micros(values["set_cost_usd"]),
        source=f"execution:{execution_id}",
        provider=provider,
        operation=skill,
        run_id=run_id,
        workflow=workflow,
        error=values["set_error"],
        **keyed(concurrency_key),
    )
    write(work, window_of(work.runtime.settings), call)


_FIGURES = {
    "token_input": "input_tokens",
    "token_output": "output_tokens",
    "token_cache_read": "cache_read_input_tokens",
    "token_cache_write": "cache_creation_input_tokens",
    "duration_ms": "duration_ms",
}
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "cost_usd": optional_cost,
    "session_id": optional_label,
    "stop_reason": optional_label,
    "model": optional_label,
    "provider": optional_label,
}
