"""Transactions beside a caller's, and savepoints inside of one, whose writes are rolled back."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from persist.db.dialects.backends import operations_of
from persist.db.dialects.interface import ForeignReference
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import Conflict, InvalidValue, StoreBusy, UnreadableRow

log = logging.getLogger("persist")

_REFERRED = {"SQLITE_CONSTRAINT_FOREIGNKEY", "23503", "23001"}
"""How databases call the error that another row refers to one that was to be deleted."""


def is_referred(work: UnitOfWork, ours: object, error: BaseException) -> bool:
    """Whether the error, as raised or as callers get it (`ours`), says that another row refers to one that was to be deleted."""
    return isinstance(ours, Conflict) and bool({ours.constraint, work.runtime.errors.code_of(error)} & _REFERRED)


@contextmanager
def left_alone(work: UnitOfWork, what: str, *, only_referred: bool = False) -> Iterator[list[ForeignReference]]:
    """Roll the block back, and warn, if a row is unreadable, locked for long, or referred to, for which keys are given."""
    references: list[ForeignReference] = []
    point, journal, written = work.savepoint(), work.journal, len(work.events.written)
    mark = (0, 0) if journal is None else journal.mark()
    try:
        yield references
    except BaseException as error:
        ours = work.runtime.translate(error)
        if point.is_active:  # not after a lost connection
            point.rollback()
        if is_referred(work, ours, error):
            references += operations_of(work.runtime.dialect).foreign_references(work.select, [*work.runtime.tables()])
        others = isinstance(ours, UnreadableRow | InvalidValue) or type(ours) is StoreBusy
        if not references and (only_referred or not others):
            raise
        if journal is not None:
            journal.rollback_to(mark)
        del work.events.written[written:]
        log.warning("%s is left as it is: %s", what, ours)
    else:
        point.commit()


@contextmanager
def always_rolled_back(work: UnitOfWork) -> Iterator[None]:
    """Roll the block back at its end, its events included; the transaction stays open."""
    point, journal, written = work.savepoint(), work.journal, len(work.events.written)
    mark = (0, 0) if journal is None else journal.mark()
    try:
        yield
    finally:
        if point.is_active:  # not after a lost connection
            point.rollback()
        if journal is not None:
            journal.rollback_to(mark)
        del work.events.written[written:]


T = TypeVar("T")


def in_snapshot(runtime: Runtime, read: Callable[[UnitOfWork], T], *, holds_store: bool = False) -> T:
    """The result of `read` from a new read transaction. `holds_store`: a caller's transaction keeps the store open."""
    work = UnitOfWork(runtime, writable=False, is_snapshot=not holds_store)
    return _within(work, read, work.end_read)


def in_transaction(runtime: Runtime, write: Callable[[UnitOfWork], T], *, holds_store: bool = True) -> T:
    """The result of `write`, which runs in a new, committed write transaction. `holds_store`: as for `in_snapshot`."""
    work = UnitOfWork(runtime, writable=True, is_snapshot=not holds_store)
    work.is_alone, work.marks = True, False
    return _within(work, write, work.commit)


def _within(work: UnitOfWork, run: Callable[[UnitOfWork], T], end: Callable[[], object]) -> T:
    work.begin()
    try:
        found = run(work)
    except BaseException as error:
        work.rollback()
        if isinstance(error, Exception) and (ours := work.runtime.translate(error)) is not error:
            raise ours from error
        raise
    end()
    return found
