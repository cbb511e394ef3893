"""Ending an execution: which columns a call replaces, and which keep their values."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import bindparam, func, update

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_flag, optional_cost, optional_count, optional_label
from persist.workflows.models import executions

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


def end_values(work: UnitOfWork, *, success: bool, error: str | None, **totals: Any) -> dict[str, Any]:
    """The values for FINISH. `totals`: those of `executions.finish` that were given. Raises InvalidValue."""
    given: dict[str, Any] = {
        **dict.fromkeys((*_OVERWRITTEN, *_KEPT)),
        "success": check_flag("success", success),
        "error": None if error is None else work.body("error", error),
    }
    for name, value in totals.items():
        if value is not None:
            given[name] = work.json(name, value) if name == "extension_status" else _CHECKS.get(name, optional_count)(name, value)
    return {"at": work.now(), **{f"set_{name}": value for name, value in given.items()}}


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "cost_usd": optional_cost,
    "session_id": optional_label,
    "stop_reason": optional_label,
}
