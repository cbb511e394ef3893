"""Usage: one row for each second in which an instance used something. NULL is unknown, which is not zero."""

from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import case, func, select, update

from persist.db.checks import optional_count
from persist.db.hot import Hot, param
from persist.db.insert import merge
from persist.db.own import own_scope, shown_scope
from persist.db.repository import Repository, reads, writes
from persist.db.totals import whole_total
from persist.db.values import build
from persist.db.work import Work
from persist.errors import Conflict, InvalidValue
from persist.telemetry.instants import next_second, second
from persist.telemetry.models import usage_samples
from persist.telemetry.schemas import UsageSample, UsageTotals
from persist.telemetry.windows import USAGE_SAMPLES

FIGURES = ("token_input", "token_output", "token_cache_read", "token_cache_write", "cost_usd_micros")

_MOST = 2**63 - 1
_TRIES = 8
_U = usage_samples.c
_mine = _U.instance_id == param("owner")
_this = (_mine, _U.occurred_at == param("second"))
_every = usage_samples.alias("every_sample")
_next = select(func.coalesce(func.max(_every.c.seq), 0) + 1).where(_every.c.instance_id == param("owner")).scalar_subquery()
# any key: in files that another program made the second alone is the key, and SQLite finds no index that repeats it
_ADD = Hot(
    merge(usage_samples).values(
        instance_id=param("owner"), occurred_at=param("second"), seq=_next, **{name: param(f"set_{name}") for name in FIGURES}
    )
)
_LOCK = Hot(select(*(_U[name] for name in FIGURES)).where(*_this).with_for_update())
_SET = Hot(update(usage_samples).where(*_this).values(seq=_next, **{name: param(f"set_{name}") for name in FIGURES}))


@cache
def _sums(*bounds: str) -> Hot:
    """The statement of totals with these of the bounds `since` and `until`."""
    sums = (case((func.count(_U[name]) > 0, whole_total(_U[name]))) for name in FIGURES)
    query = select(func.count(), *sums).select_from(usage_samples).where(_mine)
    if "since" in bounds:
        query = query.where(_U.occurred_at >= param("since"))
    if "until" in bounds:
        query = query.where(_U.occurred_at < param("until"))
    return Hot(query)


class UsageSamples(Repository):
    """`tx.telemetry.usage`. `instance_id` None: the file's own."""

    @writes
    def sample(
        self,
        *,
        at: datetime,
        token_input: int | None = None,
        token_output: int | None = None,
        token_cache_read: int | None = None,
        token_cache_write: int | None = None,
        cost_usd_micros: int | None = None,
        instance_id: str | None = None,
    ) -> UsageSample:
        """What was used in the second of `at`, added to what that second has already; the row as it is now.

        Of an unknown and a known figure the sum is the known one. Cost is in millionths of a dollar.
        """
        work = self._work
        owner = own_scope(work, "instance_id", instance_id)
        occurred_at = second("at", at)
        used = {
            "token_input": optional_count("token_input", token_input),
            "token_output": optional_count("token_output", token_output),
            "token_cache_read": optional_count("token_cache_read", token_cache_read),
            "token_cache_write": optional_count("token_cache_write", token_cache_write),
            "cost_usd_micros": optional_count("cost_usd_micros", cost_usd_micros),
        }
        USAGE_SAMPLES.lock(work, owner)
        for _ in range(_TRIES):
            if work.run(_ADD, owner=owner, second=occurred_at, **_set(used)):
                USAGE_SAMPLES.trim_if_due(work, owner, USAGE_SAMPLES.count(work, owner))
                break
            if (sums := _added(work, owner, occurred_at, used)) is not None:
                used = sums
                break
        else:
            raise Conflict("The sample of this second kept changing; try again.")
        return build(UsageSample, {"instance_id": shown_scope(work, "instance_id", owner), "occurred_at": occurred_at, **used})

    @reads
    def totals(
        self, since: datetime | None = None, until: datetime | None = None, *, instance_id: str | None = None
    ) -> UsageTotals:
        """Sums from `since` until before `until`; without them over everything that the window still has."""
        work = self._work
        owner = own_scope(work, "instance_id", instance_id)
        bounds = {name: next_second(name, given) for name, given in (("since", since), ("until", until)) if given is not None}
        return _totals(work, owner, bounds)

    @reads
    def today(self, *, instance_id: str | None = None) -> UsageTotals:
        """Sums of this day, from midnight to midnight where this process is; a sample of tomorrow is of a clock that is ahead."""
        work = self._work
        # without a zone in between: on the days when clocks change, midnight is not in the zone of now
        midnight = work.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        days = {"since": midnight, "until": midnight + timedelta(days=1)}
        bounds = {name: next_second("midnight", day.astimezone()) for name, day in days.items()}
        return _totals(work, own_scope(work, "instance_id", instance_id), bounds)

    @writes
    def trim(self, *, instance_id: str | None = None) -> int:
        """Delete all but the `Settings.usage_samples_keep` seconds that were written last; how many."""
        return USAGE_SAMPLES.trim(self._work, instance_id)


def _set(used: dict[str, int | None]) -> dict[str, int | None]:
    return {f"set_{name}": value for name, value in used.items()}


def _added(work: Work, owner: str, occurred_at: datetime, used: dict[str, int | None]) -> dict[str, int | None] | None:
    """Add to the row that is there, which is the newest then; the sums. None if it was trimmed meanwhile."""
    row = work.row(_LOCK, owner=owner, second=occurred_at)
    if row is None:
        return None
    sums: dict[str, int | None] = {}
    for (name, more), before in zip(used.items(), row, strict=True):
        total = more if before is None else before if more is None else before + more
        if total is not None and total > _MOST:
            raise InvalidValue(name, "the sum of that second does not fit 64 bits.")
        sums[name] = total
    work.run(_SET, owner=owner, second=occurred_at, **_set(sums))
    return sums


def _totals(work: Work, owner: str, bounds: dict[str, Any]) -> UsageTotals:
    row = work.row(_sums(*bounds), owner=owner, **bounds)
    assert row is not None
    samples, *sums = row
    return build(UsageTotals, {"samples": samples, **dict(zip(FIGURES, sums, strict=True))})
