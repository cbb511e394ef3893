"""Reading outside of any caller's transaction: for what runs beside the host's code, such as watchers and followers."""

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
