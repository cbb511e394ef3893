"""Runs the steps of a maintenance job, each in its own transaction.

The steps of a trial run in one transaction that is rolled back, on a copy of the file if the store is a file.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from persist.db.transactions.dry_run import always_rolled_back
from persist.db.transactions.repository import Verb
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.maintenance.trials import tried_on
from persist.store.store import Store
from persist.store.transaction import work_of

T = TypeVar("T")


class Run(Protocol):
    """Runs one step. A step that `writes` may run again after a conflict with another writer."""

    def __call__(self, step: Callable[[UnitOfWork], T], /, *, writes: bool = True) -> T: ...


@contextmanager
def running(store: Store, *, trial: bool) -> Iterator[Run]:
    """Yield the function that runs the steps of one job. Steps of a trial see earlier steps' changes, which are rolled back."""
    if not trial:

        def run(step: Callable[[UnitOfWork], T], /, *, writes: bool = True) -> T:
            if writes:
                return store.transact(lambda tx: framed(work_of(tx), step))
            with store.read() as tx:
                return framed(work_of(tx), step)

        yield run
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
