"""Reading outside of any caller's transaction: for what runs beside the host's code, such as watchers and followers."""

from collections.abc import Callable
from typing import TypeVar

from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork

T = TypeVar("T")


def in_snapshot(runtime: Runtime, read: Callable[[UnitOfWork], T]) -> T:
    """What `read` returns, from a read transaction of its own that ends before this returns."""
    work = UnitOfWork(runtime, writable=False, is_snapshot=True)
    work.begin()
    try:
        found = read(work)
    except BaseException:
        work.rollback()
        raise
    work.end_read()
    return found
