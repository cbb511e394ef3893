"""The row of an execution: reading, inserting once per key, ending, and costs besides model calls."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypedDict

from sqlalchemy import Float, bindparam, cast, func, literal, literal_column, select, update

from persist.db.expressions.upsert import insert_missing, taken
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.conditions import reader_of
from persist.db.values.arguments import Amount, check_flag, check_keywords, optional_cost, optional_count, optional_label
from persist.db.values.json import Json, encode
from persist.errors import Conflict, NotFound
from persist.usage.models import rollups
from persist.usage.schemas import Bucket, Source
from persist.usage.spending import bucket_start
from persist.usage.writing import MOST, Call, keyed, micros, window_of, write
from persist.workflows.models import executions, runs
from persist.workflows.schemas import Execution, Lease
from persist.workflows.storage.run_rows import RUN, check_hold, find_run, given_lease

# Reading the row of an execution, and checking the lease on its run.

_E = executions.c
EXECUTION = Values(Execution, executions)
"""Every column but `output_text`, which neither lists nor `get` read."""
_GET = Statement(select(*EXECUTION.columns).where(_E.id == param("row_id")))
_LOCK_RUN_OF = Statement(
    select(*RUN.columns)
    .where(
        runs.c.id
        == select(
            func.coalesce(func.nullif(_E.workflow_run_id, literal_column("''")), bindparam("of_lease", type_=runs.c.id.type))
        )
        .where(_E.id == param("row_id"))
        .scalar_subquery()
    )
    .with_for_update()
)
_NO_RUN_ID = reader_of(runs.c.id)
"""What is wrong with a text that cannot be the id of a run."""
_RUN_ID = Statement(select(_E.workflow_run_id).where(_E.id == param("row_id")))


def get_execution(work: UnitOfWork, id: str) -> Execution:
    """The execution. Raises NotFound."""
    return EXECUTION.found(work.row(_GET, row_id=work.label("id", id)), "execution", id)


def hold_run_of(work: UnitOfWork, workflow_run_id: str | None, lease: Lease | None) -> bool:
    """Lock the execution's run; False if it has no row. LeaseLost: another worker holds it. NotFound: a lease without run."""
    if lease is not None:
        given_lease(lease)
    run_id = workflow_run_id or (None if lease is None else lease.run_id)
    run = None if run_id is None else find_run(work, run_id)
    if run is not None:
        check_hold(run, lease, work.now())
    elif lease is not None:
        raise NotFound("workflow run", lease.run_id)
    return run is not None


def holds(work: UnitOfWork, id: str, lease: Lease | None) -> bool:
    """Whether the execution exists. Raises LeaseLost if another worker holds its run."""
    row_id = work.label("id", id)
    if lease is not None:
        given_lease(lease)
    of_lease = None if lease is None or _NO_RUN_ID(lease.run_id) else lease.run_id
    with work.batch() as batch:
        row = batch.row(_RUN_ID, row_id=row_id)
        found = batch.row(_LOCK_RUN_OF, row_id=row_id, of_lease=of_lease)
    if row.result is None:
        return False
    if found.result is None:
        hold_run_of(work, row.result[0], lease)
    else:
        check_hold(RUN(found.result), lease, work.now())
    return True


_INSERT = Statement(insert_missing(executions).returning(*EXECUTION.columns))
_BY_KEY = Statement(select(*EXECUTION.columns).where(_E.idempotency_key == param("key"), _E.idempotency_key.is_not(None)))


def insert_execution(work: UnitOfWork, id: str, fields: dict[str, Any]) -> Execution:
    """Insert the execution, or return the one that its idempotency key began. Raises Conflict."""
    inserted = work.returned_last(_INSERT, **inserted_row(id, fields))
    if inserted is not None:
        return EXECUTION(inserted)
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


# Ending an execution: which columns a call replaces, and which keep their values.

_id = param("row_id")
_OF_CALL = ("model", "provider", "counted_elsewhere")
"""Totals that are no columns: they say of which call the others are."""
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


def end_values(work: UnitOfWork, *, success: bool, error: str | None, totals: "ExecutionTotals | None" = None) -> dict[str, Any]:
    """The values for FINISH, and for `count_usage`. Raises InvalidValue."""
    given: dict[str, Any] = {
        **dict.fromkeys((*_OVERWRITTEN, *_KEPT)),
        "success": check_flag("success", success),
        "error": None if error is None else work.body("error", error),
    }
    checked = check_totals(work.runtime, totals or {})
    given |= {name: value for name, value in checked.items() if name not in _OF_CALL}
    return {"at": work.now(), **{f"set_{name}": value for name, value in given.items()}}


class ExecutionTotals(TypedDict, total=False):
    """What an execution used and how it went.

    With a cost or a `model` it is also a call of that model of the `provider`, or of the model "" if none is named, with its
    sums and budgets (`usage`), counted once, when the execution ends first. With `counted_elsewhere=True` it is none: a
    recorder, a sample or `usage.calls.record` reports the same calls.
    """

    turns: int | None
    duration_ms: int | None
    cost_usd: Amount | None
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
    counted_elsewhere: bool | None


def check_totals(runtime: Runtime, totals: "ExecutionTotals") -> dict[str, Any]:
    """The totals that are given, as they are stored. Raises InvalidValue for another name, and for a value of another kind."""
    return {
        name: encode(value, name, runtime.limits)
        if name == "extension_status"
        else _CHECKS.get(name, optional_count)(name, value)
        for name, value in check_keywords(totals, ExecutionTotals).items()
    }


def count_usage(work: UnitOfWork, execution_id: str, values: dict[str, Any], totals: "ExecutionTotals") -> None:
    """Count what an execution used, by the values of `end_values`, as a call, if it had not ended: see ExecutionTotals."""
    model = totals.get("model")
    if (model is None and not values["set_cost_usd"]) or totals.get("counted_elsewhere"):
        return
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
        model or "",
        **{name: None if value is None else min(value, MOST) for name, value in used.items()},
        cost_usd_micros=micros(values["set_cost_usd"]),
        source=f"execution:{execution_id}",
        provider=totals.get("provider"),
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
    "counted_elsewhere": check_flag,
}


# What executions cost beyond the calls that usage has of their runs: those counted elsewhere, and rows of other programs or of
# releases that counted no cost without a model.

_R = rollups.c
_LAST = datetime.max.replace(microsecond=999_000, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class UncountedCost:
    """The number of runs whose executions cost more than usage counts for them, and how much more, in millionths of a dollar."""

    runs: int
    cost_usd_micros: int


@cache
def _beyond() -> Statement:
    scope = literal(f"{Source.RUN}:").concat(func.coalesce(_E.workflow_run_id, _E.id))
    ended = (_E.finished_at >= param("since")) & (_E.finished_at < param("until"))
    each = select(scope.label("scope"), _E.cost_usd).where(_E.cost_usd > 0, ended).subquery("each")
    cost = func.sum(each.c.cost_usd) * literal(1_000_000.0, Float())
    spent = select(each.c.scope, cost.label("cost"), func.count().label("number")).group_by(each.c.scope).subquery("spent")
    hours = [_R.bucket == literal(Bucket.HOUR, _R.bucket.type), _R.starts_at >= param("from_hour"), _R.starts_at < param("to")]
    of_scope = select(_R.scope, cast(func.sum(_R.cost_usd_micros), Float()).label("cost")).where(*hours).group_by(_R.scope)
    counted = of_scope.subquery("counted")
    beyond = spent.c.cost - func.coalesce(counted.c.cost, 0.0)
    found = select(func.count(), func.sum(beyond)).select_from(spent.outerjoin(counted, counted.c.scope == spent.c.scope))
    # each cost was rounded to whole millionths on its own
    return Statement(found.where(beyond > cast(spent.c.number, Float())))


def uncounted_cost(work: UnitOfWork, since: datetime | None, until: datetime | None) -> UncountedCost:
    """Sum up executions that ended from the hour of `since` on and before `until`; None: all there are."""
    begins = datetime.min.replace(tzinfo=UTC) if since is None else bucket_start(Bucket.HOUR, since)
    ends = _LAST if until is None else until
    row = work.row(_beyond(), since=begins, until=ends, from_hour=begins, to=ends)
    return UncountedCost(0, 0) if row is None or not row[0] else UncountedCost(int(row[0]), round(row[1]))
