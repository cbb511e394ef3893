"""Helpers of maintenance functions: read snapshots and the translation of driver errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.store.store import Store


@contextmanager
def looking(store: Store, verb: str) -> Iterator[UnitOfWork]:
    """Open a read snapshot. `verb`: the name of the function that reads, for error messages."""
    with store.read() as tx, Verb(tx._work, verb, writes=False):
        yield tx._work


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
