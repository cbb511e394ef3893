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
    work.begin()
    try:
        found = read(work)
    except BaseException:
        work.rollback()
        raise
    work.end_read()
    return found


def in_transaction(runtime: Runtime, write: Callable[[UnitOfWork], T]) -> T:
    """What `write` returns, from a write transaction of its own that is committed before this returns."""
    work = UnitOfWork(runtime, writable=True)
    work.is_alone, work.marks = True, False
    work.begin()
    try:
        found = write(work)
    except BaseException:
        work.rollback()
        raise
    work.commit()
    return found
