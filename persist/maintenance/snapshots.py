"""How maintenance reaches a store: a snapshot to look at, and errors of drivers made ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.store.store import Store


@contextmanager
def looking(store: Store, verb: str) -> Iterator[UnitOfWork]:
    """One snapshot, in which `verb` only reads."""
    with store.read() as tx, tx._work.verb(verb, writes=False):
        yield tx._work


@contextmanager
def translated(store: Store) -> Iterator[None]:
    """For what runs on a connection of its own."""
    try:
        yield
    except Exception as error:
        ours = store.runtime.translate(error)
        if ours is error:
            raise
        raise ours from error
