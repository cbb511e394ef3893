"""Runs the steps of a maintenance job, each in a transaction; those of a trial in one, rolled back, on a copy of a file."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

from persist.db.dialects.backends import dialect_for_file
from persist.db.transactions.snapshots import always_rolled_back, check_deferred, is_referred
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.errors import Conflict
from persist.events.switching import is_on
from persist.maintenance.backups import backup
from persist.store.store import Store
from persist.store.transaction import Transaction, work_of

# Runs a trial of a maintenance job on a private copy of the file, so that other writers need not wait for its lock.


class Trial(Store):
    """A store on a temporary copy, which is deleted after the trial. `bodies`: where the original keeps bodies of blobs."""

    bodies: Any = None


@contextmanager
def tried_on(store: Store) -> Iterator[Store]:
    """Yield the store for a trial: a copy of the file; the store itself on a server, in memory or on the caller's engine."""
    runtime = store.runtime
    if isinstance(store, Trial) or runtime.dialect.path is None or not runtime.owns_engine or runtime.read_only:
        yield store
        return
    # the bodies are those of the store itself, and stay
    settings = runtime.settings.model_copy(update={"synchronous": "normal", "blobs": None})
    with TemporaryDirectory(prefix="persist-trial-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "trial.db"
        backup(store, path)
        dialect = dialect_for_file(path, settings)
        # not as the owner: a store that opens its own file folds text of dead writers, and the trial must count that itself
        copy = Trial.on_dialect(dialect, settings, runtime.clock, runtime.sleep, migrate=False, owns_engine=False)
        copy.runtime.owns_engine = True
        assert isinstance(copy, Trial)
        copy.bodies = runtime.blob_store
        with copy:
            yield copy


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
        self._checks = False
        """Whether a COMMIT met a deferred foreign key: only then these are looked for before each COMMIT."""

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
            if self._checks:
                check_deferred(work_of(tx))
            return framed(work_of(tx), step)

        try:
            result = self._store.transact(timed)
        except Conflict as error:
            if self._checks or not is_referred(runtime, error, error):
                raise
            self._checks = True
            result = self._store.transact(timed)
        self._held = time.monotonic() - began
        return result


@contextmanager
def running(store: Store, *, trial: bool) -> Iterator[Run]:
    """Yield the function that runs the steps of one job. Steps of a trial see earlier steps' changes, which are rolled back."""
    if not trial:
        yield _Steps(store)
        return
    with tried_on(store) as stage, ExitStack() as stack:
        with stage.read() as tx:  # a trial cannot begin again once it finds that the log is on
            if stage.runtime.log is None and is_on(work_of(tx)):
                stage.runtime.keep_log(True)
        work = work_of(stack.enter_context(stage.begin()))
        stack.enter_context(always_rolled_back(work))
        if stage is not store:
            work.transaction.may_be_long = True  # no other writer waits for the copy's lock
        check_deferred(work)  # no COMMIT will

        def try_out(step: Callable[[UnitOfWork], T], /, *, writes: bool = True) -> T:
            return framed(work, step)

        yield try_out


def framed(work: UnitOfWork, step: Callable[[UnitOfWork], T]) -> T:
    """Run a step as a verb, which translates driver errors into PersistErrors."""
    with Verb(work, "maintenance", writes=work.writable):
        return step(work)
