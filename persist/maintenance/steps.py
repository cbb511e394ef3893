"""Steps of maintenance: each in a transaction of its own; or for a trial all in one that is rolled back, on a copy of a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from persist.db.transactions.dry_run import always_rolled_back
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.maintenance.trials import tried_on
from persist.store.store import Store

T = TypeVar("T")


class Run(Protocol):
    """Runs one step. One that `writes` may run twice, where another writer was in the way."""

    def __call__(self, step: Callable[[UnitOfWork], T], /, *, writes: bool = True) -> T: ...


@contextmanager
def running(store: Store, *, trial: bool) -> Iterator[Run]:
    """What runs the steps of one job. A trial sees what it did, and leaves nothing of it behind."""
    if not trial:

        def run(step: Callable[[UnitOfWork], T], /, *, writes: bool = True) -> T:
            if writes:
                return store.transact(lambda tx: _framed(tx._work, step))
            with store.read() as tx:
                return _framed(tx._work, step)

        yield run
        return
    with tried_on(store) as stage, stage.begin() as tx, always_rolled_back(tx._work):
        if stage is not store:
            tx._work._began = 0.0  # its lock is nobody else's to wait for, however long it is held

        def try_out(step: Callable[[UnitOfWork], T], /, *, writes: bool = True) -> T:
            return _framed(tx._work, step)

        yield try_out


def _framed(work: UnitOfWork, step: Callable[[UnitOfWork], T]) -> T:
    """In the frame of a verb: what a driver raises comes out as ours."""
    with work.verb("maintenance", writes=work.writable):
        return step(work)
