"""`tx.telemetry.usage`: a row for each second in which an instance used anything. NULL means unknown, not zero."""

from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import bindparam, case, func, insert, literal, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from persist.db.expressions.numbers import has_next, next_number, whole_total
from persist.db.expressions.upsert import merging
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.own_scope import public_scope, resolve_scope
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import Amount, check_flag, optional_count
from persist.db.values.frozen import construct
from persist.errors import Conflict, InvalidValue
from persist.telemetry.models import usage_samples, window_marks
from persist.telemetry.schemas import UsageSample, UsageTotals
from persist.telemetry.windows import USAGE_SAMPLES, next_second, number_of, second
from persist.usage import writing
from persist.usage.schemas import Source

FIGURES = ("token_input", "token_output", "token_cache_read", "token_cache_write", "cost_usd_micros")
_MAX = 2**63 - 1
_TRIES = 8
_U = usage_samples.c
_of_owner = _U.instance_id == param("owner")
_this_second = (_of_owner, _U.occurred_at == param("second"))
_every_sample = usage_samples.alias("every_sample")
_next = (
    select(next_number(_every_sample.c.seq))
    .where(_every_sample.c.instance_id == param("owner"), has_next(_every_sample.c.seq))
    .scalar_subquery()
)
# ON CONFLICT of any key: in files made by another program the key is the second alone, so naming columns would find no index
# INSERT … SELECT: Citus plans no subquery in VALUES
_ADD = Statement(
    merging(
        insert(usage_samples).from_select(
            ["instance_id", "occurred_at", "seq", *FIGURES],
            select(
                bindparam("owner", type_=_U.instance_id.type),
                bindparam("second", type_=_U.occurred_at.type),
                next_number(_every_sample.c.seq),
                *(bindparam(f"set_{name}", type_=_U[name].type) for name in FIGURES),
            ).where(_every_sample.c.instance_id == param("owner"), has_next(_every_sample.c.seq)),
        )
    )
)
_LOCK = Statement(select(*(_U[name] for name in FIGURES)).where(*_this_second).with_for_update())
_SET = Statement(update(usage_samples).where(*_this_second).values(seq=_next, **{name: param(f"set_{name}") for name in FIGURES}))
_COUNT_NEW = Statement(
    update(window_marks)
    .where(
        window_marks.c.instance_id == param("owner"),
        window_marks.c.window == param("name"),
        ~select(_U.occurred_at).where(*_this_second).exists(),
    )
    .values(inserted=window_marks.c.inserted + 1)
    .returning(window_marks.c.inserted)
)


def _grown(name: str) -> ColumnElement[Any]:
    more, before = bindparam(f"set_{name}", type_=_U[name].type), _U[name]
    return func.coalesce(before + more, before, more)


def _fits(name: str) -> ColumnElement[bool]:
    more, before = bindparam(f"set_{name}", type_=_U[name].type), _U[name]
    return or_(before.is_(None), more.is_(None), before <= literal(_MAX, before.type) - more)


# The sum is added only where it fits: the statement must not fail, and `_added` then says which one does not fit.
_GROW = Statement(
    update(usage_samples)
    .where(*_this_second, *(_fits(name) for name in FIGURES))
    .values(seq=_next, **{name: _grown(name) for name in FIGURES})
    .returning(*(_U[name] for name in FIGURES))
)


@cache
def _sums(*bounds: str) -> Statement:
    sums = (case((func.count(_U[name]) > 0, whole_total(_U[name]))) for name in FIGURES)
    query = select(func.count(), *sums).select_from(usage_samples).where(_of_owner)
    if "since" in bounds:
        query = query.where(_U.occurred_at >= param("since"))
    if "until" in bounds:
        query = query.where(_U.occurred_at < param("until"))
    return Statement(query)


class UsageSamples(Repository[F]):
    """`tx.telemetry.usage`. `instance_id` None: the instance that owns the file."""

    @writes
    def sample(
        self,
        *,
        at: datetime,
        token_input: int | None = None,
        token_output: int | None = None,
        token_cache_read: int | None = None,
        token_cache_write: int | None = None,
        cost_usd: Amount | None = None,
        cost_usd_micros: int | None = None,
        instance_id: str | None = None,
        model: str | None = None,
        token_reasoning: int | None = None,
        provider: str | None = None,
        operation: str | None = None,
        agent: str | None = None,
        owner: str | None = None,
        workspace_id: str | None = None,
        workflow: str | None = None,
        task_id: str | None = None,
        run_id: str | None = None,
        trace_id: str | None = None,
        span_id: str | None = None,
        duration_ms: int | None = None,
        error: str | None = None,
        key: str | None = None,
        within_budget: bool = False,
    ) -> UsageSample:
        """Add usage to the second of `at`; the resulting row.

        Unknown (None) plus a known figure is the known one. Cost is in US dollars, or in millionths of one.

        With a `model` it is a call of that model, too, as `usage.calls.record` writes it, with sums and budgets; the arguments
        from `token_reasoning` on say more of that call and need the model. Where a call of the same `key` was counted, nothing is
        added. With `within_budget` nothing is added and BudgetExceeded raised where a budget of the call was used up before.
        """
        work = self._work
        scope = resolve_scope(work, "instance_id", instance_id)
        occurred_at = second("at", at)
        told = {
            "token_reasoning": token_reasoning,
            "provider": provider,
            "operation": operation,
            "agent": agent,
            "owner": owner,
            "workspace_id": workspace_id,
            "workflow": workflow,
            "task_id": task_id,
            "run_id": run_id,
            "trace_id": trace_id,
            "span_id": span_id,
            "duration_ms": duration_ms,
            "error": error,
            "key": key,
        }
        used = {
            "token_input": optional_count("token_input", token_input),
            "token_output": optional_count("token_output", token_output),
            "token_cache_read": optional_count("token_cache_read", token_cache_read),
            "token_cache_write": optional_count("token_cache_write", token_cache_write),
            "cost_usd_micros": optional_count("cost_usd_micros", writing.given_micros(cost_usd, cost_usd_micros)),
        }
        guarded = check_flag("within_budget", within_budget)
        if model is None:
            if guarded or [*told.values()].count(None) < len(told):
                raise InvalidValue("model", "name the model of the call that the further arguments tell of.")
            return _add(work, scope, occurred_at, used)
        of, named = public_scope(work, "instance_id", scope), work.label("model", model)
        call = writing.Call.of(work, Source.INSTANCE, of, at, named, **used, **told)
        if guarded:
            writing.refuse_unless_counted(work, call)
        if call.source is None:
            return _add(work, scope, occurred_at, used, call)
        USAGE_SAMPLES.lock(work, scope)
        if writing.write(work, writing.window_of(work.runtime.settings), call):
            return _add(work, scope, occurred_at, used)
        row = work.row(_LOCK, owner=scope, second=occurred_at)
        return _sample(work, scope, occurred_at, dict(zip(FIGURES, row or [None] * len(FIGURES), strict=True)))

    @reads
    def totals(
        self, since: datetime | None = None, until: datetime | None = None, *, instance_id: str | None = None
    ) -> UsageTotals:
        """Sums from `since` until before `until`; without these over all samples still in the window."""
        work = self._work
        owner = resolve_scope(work, "instance_id", instance_id)
        bounds = {name: next_second(name, given) for name, given in (("since", since), ("until", until)) if given is not None}
        return _totals(work, owner, bounds)

    @reads
    def today(self, *, instance_id: str | None = None) -> UsageTotals:
        """Sums of today, from midnight to midnight in this process's time zone. Samples dated later are excluded."""
        work = self._work
        # naive: on days when clocks change, midnight has another UTC offset than now
        midnight = work.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        days = {"since": midnight, "until": midnight + timedelta(days=1)}
        bounds = {name: next_second("midnight", day.astimezone()) for name, day in days.items()}
        return _totals(work, resolve_scope(work, "instance_id", instance_id), bounds)

    @writes
    def trim(self, *, instance_id: str | None = None) -> int:
        """Delete all but the `Settings.usage_samples_keep` samples written last; the number deleted."""
        return USAGE_SAMPLES.trim(self._work, instance_id)


def _add(
    work: UnitOfWork, scope: str, occurred_at: datetime, used: dict[str, int | None], call: writing.Call | None = None
) -> UsageSample:
    """Add usage to the row of its second. `call`: one without a source, to be written with it."""
    one_writer = work.runtime.dialect.one_writer
    if not one_writer and (sums := _added_at_once(work, scope, occurred_at, used, call)) is not None:
        return _sample(work, scope, occurred_at, sums)
    USAGE_SAMPLES.lock(work, scope)
    for _ in range(_TRIES):
        if work.run(_ADD, owner=scope, second=occurred_at, **_set_params(used)):
            with work.batch() as batch:
                counted = USAGE_SAMPLES.count(batch, scope)
            USAGE_SAMPLES.trim_if_due(work, scope, number_of(counted))
            break
        if (sums := _added(work, scope, occurred_at, used)) is not None:
            used = sums
            break
    else:
        raise Conflict("The sample of this second kept changing; try again.")
    if one_writer and call is not None:
        writing.write(work, writing.window_of(work.runtime.settings), call)
    return _sample(work, scope, occurred_at, used)


def _sample(work: UnitOfWork, owner: str, occurred_at: datetime, used: dict[str, int | None]) -> UsageSample:
    return construct(UsageSample, {"instance_id": public_scope(work, "instance_id", owner), "occurred_at": occurred_at, **used})


def _added_at_once(
    work: UnitOfWork, owner: str, occurred_at: datetime, used: dict[str, int | None], call: writing.Call | None
) -> dict[str, int | None] | None:
    """Insert the row or add to it in one round trip, under the window's lock; the sums. None if neither was possible."""
    given = {"owner": owner, "second": occurred_at, **_set_params(used)}
    with work.batch() as batch:
        USAGE_SAMPLES.lock_with(batch, owner)
        counted = USAGE_SAMPLES.count_if(batch, owner, _COUNT_NEW, second=occurred_at)
        grown = batch.returned(_GROW, **given)
        added = batch.run(_ADD, **given)
        begun = None if call is None else writing.begin(batch, call)
    if begun is not None and call is not None:
        writing.end(work, writing.window_of(work.runtime.settings), call, begun)
    if added.result:
        if counted.result is None:
            with work.batch() as batch:
                counted = USAGE_SAMPLES.count(batch, owner)
        USAGE_SAMPLES.trim_if_due(work, owner, number_of(counted))
        return used
    return None if grown.result is None else dict(zip(FIGURES, grown.result, strict=True))


def _set_params(used: dict[str, int | None]) -> dict[str, int | None]:
    return {f"set_{name}": value for name, value in used.items()}


def _added(work: UnitOfWork, owner: str, occurred_at: datetime, used: dict[str, int | None]) -> dict[str, int | None] | None:
    """Add to the existing row, which becomes the newest; the sums. None if the row was trimmed since."""
    row = work.row(_LOCK, owner=owner, second=occurred_at)
    if row is None:
        return None
    sums: dict[str, int | None] = {}
    for (name, more), before in zip(used.items(), row, strict=True):
        total = more if before is None else before if more is None else before + more
        if total is not None and total > _MAX:
            raise InvalidValue(name, "the sum of that second does not fit 64 bits.")
        sums[name] = total
    work.run(_SET, owner=owner, second=occurred_at, **_set_params(sums))
    return sums


def _totals(work: UnitOfWork, owner: str, bounds: dict[str, Any]) -> UsageTotals:
    row = work.row(_sums(*bounds), owner=owner, **bounds)
    assert row is not None
    samples, *sums = row
    return construct(UsageTotals, {"samples": samples, **dict(zip(FIGURES, sums, strict=True))})
