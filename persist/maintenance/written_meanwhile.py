"""What others wrote while rows of a person were erased: who had begun is waited for, without a lock that would stop others."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from persist.db.dialects.backends import operations_of
from persist.db.expressions.locking import LOCK_TIMEOUT_SECONDS
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import StoreBusy
from persist.events.erasing import last_position
from persist.maintenance import erasure_marks as marks
from persist.maintenance.erasure_plans import planned_again
from persist.maintenance.steps import Run
from persist.store.store import Store

_PATIENCE = 5 * LOCK_TIMEOUT_SECONDS
"""As long as a step waits for a row that another transaction has locked, with its retries."""
_PAUSE = 0.02


def look_again(run: Run, store: Store, id: str, keys: Sequence[str], selectors: Mapping[str, str]) -> tuple[list[str], int]:
    """Wait for transactions that were writing while parts of an erasure were erased, and add their rows to the erasure.

    The new parts have rows that remain, and rows that only the log has because their writers deleted them. Without selectors they
    have only items made from items of these parts, such as forks. Returns the keys of the new parts, and a position: with
    selectors, all rows in events up to this position were seen. Raises StoreBusy if a writer goes on.
    """
    written = run(last_position, writes=False)  # transactions with smaller ones are waited for
    _wait_for_writers(run, store.runtime.sleep)
    chosen, parts = set(keys), run(partial(marks.parts, id=id), writes=False)
    erased = [(part.kind, part.things, part.elsewhere) for part in parts if part.key in chosen and part.kind != marks.SESSIONS]
    plan = run(partial(planned_again, selectors=selectors, erased=erased), writes=False)
    waiting = {(part.kind, key) for part in parts if part.upto is None for key in part.things}
    late = marks.split(plan, waiting)
    return run(partial(marks.add, id=id, parts=late)) if late else [], written


def _wait_for_writers(run: Run, sleep: Callable[[float], object]) -> None:
    """Wait until every transaction that has written, or locked a row to write, is over: what it has committed can be seen then.

    Nobody waits for the caller: transactions that write later go on, and are not waited for. Raises StoreBusy after 25 seconds.
    """
    before = run(_writers, writes=False)
    began = time.monotonic()
    while before:
        if time.monotonic() - began > _PATIENCE:
            reason = "another transaction that has written goes on; the erasure is not done, `persist maintain` finishes it"
            raise StoreBusy(_PATIENCE, reason)
        sleep(_PAUSE)
        before &= run(_writers, writes=False)


def _writers(work: UnitOfWork) -> frozenset[str]:
    return operations_of(work.runtime.dialect).writers(work.select)
