"""Runs the steps of a maintenance job, each in its own transaction.

The steps of a trial run in one transaction that is rolled back, on a copy of the file if the store is a file.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from persist.db.transactions.dry_run import always_rolled_back
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.maintenance.trials import tried_on
from persist.store.store import Store
from persist.store.transaction import Transaction, work_of

T = TypeVar("T")


class Run(Protocol):
    """Runs one step. A step that `writes` may run again after a conflict with another writer."""

    def __call__(self, step: Callable[[UnitOfWork], T], /, *, writes: bool = True) -> T: ...


class _Steps:
    """Each step in a transaction of its own.

    Where one writer locks the whole database, others ask for the lock again and again, with pauses. A step that writes leaves the
    lock to them for as long as the one before it has held it; without that they would hardly ever find it free.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._held = store, 0.0

    def __call__(self, step: Callable[[UnitOfWork], T], /, *, writes: bool = True) -> T:
        if not writes:
            with self._store.read() as tx:
                return framed(work_of(tx), step)
        runtime = self._store.runtime
        if self._held and runtime.dialect.one_writer:
            runtime.sleep(self._held)
        began = 0.0

        def timed(tx: Transaction) -> T:
            nonlocal began
            began = time.monotonic()
            return framed(work_of(tx), step)

        result = self._store.transact(timed)
        self._held = time.monotonic() - began
        return result


@contextmanager
def running(store: Store, *, trial: bool) -> Iterator[Run]:
    """Yield the function that runs the steps of one job. Steps of a trial see earlier steps' changes, which are rolled back."""
    if not trial:
        yield _Steps(store)
        return
    with tried_on(store) as stage, stage.begin() as tx, always_rolled_back(work_of(tx)):
        work = work_of(tx)
        if stage is not store:
            work.transaction.may_be_long = True  # no other writer waits for the copy's lock

        def try_out(step: Callable[[UnitOfWork], T], /, *, writes: bool = True) -> T:
            return framed(work, step)

        yield try_out


def framed(work: UnitOfWork, step: Callable[[UnitOfWork], T]) -> T:
    """Run a step as a verb, which translates driver errors into PersistErrors."""
    with Verb(work, "maintenance", writes=work.writable):
        return step(work)
