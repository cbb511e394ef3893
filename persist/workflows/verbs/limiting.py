"""What claims do about limits: whether there are any, which of the claimed runs have to go back, and counting starts."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import delete, insert

from persist.db.changes.batch import Batch
from persist.db.dialects.event_log import RUNS
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.workflows.limit_values import ANY_WORKFLOW, WORKFLOW_PREFIX
from persist.workflows.models import starts
from persist.workflows.schemas import WorkflowRun
from persist.workflows.storage.run_rows import announce_claimable

_S = starts.c
_ADD = Statement(insert(starts))
_FORGET = Statement(delete(starts).where(_S.key == param("of_key"), _S.seq <= param("until_seq")))
_known: WeakKeyDictionary[Runtime, bool] = WeakKeyDictionary()
"""Whether a store has met limits lately. It only decides which statement comes first: each finds out if it is the wrong one."""


def are_known(work: UnitOfWork) -> bool:
    """Whether claims of this store have met limits lately."""
    return _known.get(work.runtime, False)


def know(work: UnitOfWork, found: bool) -> None:
    """Remember whether there are limits."""
    _known[work.runtime] = found


def keys_of(run: WorkflowRun) -> tuple[str, ...]:
    """The keys of the limits under which a run is."""
    of_workflow = WORKFLOW_PREFIX + run.workflow_name
    return (of_workflow,) if run.concurrency_key is None else (of_workflow, run.concurrency_key)


def announce_freed(work: UnitOfWork, run: WorkflowRun) -> None:
    """Wake idle workers after the commit: a run no longer runs, and has perhaps left its place to another one."""
    if run.concurrency_key is not None:
        work.announce(RUNS, ANY_WORKFLOW)
    elif _known.get(work.runtime, True):
        announce_claimable(work, run)


class Standing(NamedTuple):
    """How one limit stands, as `limit_conditions` reads it under the limit's lock."""

    key: str
    concurrency: int | None
    rate: int | None
    per_ms: int | None
    running: int
    last: int
    blocked: int
    """How many of the next `many` starts would be too many within the period."""

    @property
    def is_rated(self) -> bool:
        """Whether starts are counted."""
        return self.rate is not None and self.per_ms is not None and self.per_ms > 0


class Claimed(NamedTuple):
    """Claimed runs, as their limits have it."""

    kept: list[WorkflowRun]
    excess: list[WorkflowRun]
    """The claimed runs for which there is no room after all."""
    starts: dict[str, tuple[Standing, int]]
    """The starts to be counted, by key."""


def settle(claimed: Sequence[WorkflowRun], rows: Sequence[Row], many: int, *, counted: bool, placed: bool = False) -> Claimed:
    """Which of the claimed runs may start.

    rows     the limits; those of `blocked` are counted for the next `many` starts
    counted  whether the claimed runs are among the running ones of these rows
    placed   whether they have had their places before
    """
    standings = {row[0]: Standing(*row) for row in rows}
    under: dict[str, int] = dict.fromkeys(standings, 0)
    for run in claimed:
        for key in keys_of(run):
            if key in under:
                under[key] += 1
    places, free = {}, {}
    for key, one in standings.items():
        if one.concurrency is not None and not placed:
            places[key] = one.concurrency - one.running + (under[key] if counted else 0)
        if one.is_rated:
            assert one.rate is not None
            free[key] = min(many, one.rate) - one.blocked
    result = Claimed([], [], {})
    for run in claimed:
        keys = [key for key in keys_of(run) if key in standings]
        if any(places.get(key, 1) < 1 or free.get(key, 1) < 1 for key in keys):
            result.excess.append(run)
            continue
        result.kept.append(run)
        for key in keys:
            if key in places:
                places[key] -= 1
            if key in free:
                free[key] -= 1
                result.starts[key] = standings[key], result.starts.get(key, (standings[key], 0))[1] + 1
    return result


def count_starts(batch: Batch, counted: dict[str, tuple[Standing, int]], now_ms: int) -> None:
    """Store the starts, and forget those that no longer matter."""
    rows: list[dict[str, Any]] = []
    for key, (standing, count) in counted.items():
        assert standing.rate is not None
        rows += [{"key": key, "seq": standing.last + number, "at_ms": now_ms} for number in range(1, count + 1)]
        batch.run(_FORGET, of_key=key, until_seq=standing.last + count - standing.rate)
    batch.run_many(_ADD, rows)
