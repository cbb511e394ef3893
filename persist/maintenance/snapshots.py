"""Helpers of maintenance functions: read snapshots and the translation of driver errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.store.store import Store
from persist.store.transaction import work_of


@contextmanager
def looking(store: Store, verb: str) -> Iterator[UnitOfWork]:
    """Open a read snapshot. `verb`: the name of the function that reads, for error messages."""
    with store.read() as tx, Verb(work_of(tx), verb, writes=False):
        yield work_of(tx)


@contextmanager
def translated(store: Store) -> Iterator[None]:
    """Translate driver errors into PersistErrors, for code that opens its own connection."""
    try:
        yield
    except Exception as error:
        ours = store.runtime.translate(error)
        if ours is error:
            raise
        raise ours from error
