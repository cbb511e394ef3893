"""Transactions outside of any caller's: for what runs beside the host's code, such as followers, or after a commit."""

from collections.abc import Callable
from typing import TypeVar

from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork

T = TypeVar("T")


def in_snapshot(runtime: Runtime, read: Callable[[UnitOfWork], T], *, holds_store: bool = False) -> T:
    """What `read` returns, from a read transaction of its own that ends before this returns.

    `holds_store`: the store cannot be closed at that moment, as with any transaction of a caller's.
    """
    work = UnitOfWork(runtime, writable=False, is_snapshot=not holds_store)
    return _within(work, read, work.end_read)


def in_transaction(runtime: Runtime, write: Callable[[UnitOfWork], T], *, holds_store: bool = True) -> T:
    """What `write` returns, from a write transaction of its own that is committed before this returns.

    `holds_store`: as for `in_snapshot`.
    """
    work = UnitOfWork(runtime, writable=True, is_snapshot=not holds_store)
    work.is_alone, work.marks = True, False
    return _within(work, write, work.commit)


def _within(work: UnitOfWork, run: Callable[[UnitOfWork], T], end: Callable[[], object]) -> T:
    work.begin()
    try:
        found = run(work)
    except BaseException:
        work.rollback()
        raise
    end()
    return found
