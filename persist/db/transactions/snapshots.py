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

# Which foreign keys of other programs' tables refuse a deletion: to a row of persist, or to one that would go with it.

log = logging.getLogger("persist")
T = TypeVar("T")

Chain = tuple[ForeignReference, ...]
"""A foreign key that may refuse a deletion, and the cascading ones from what it refers to up to a table of persist."""

_REFERRED = {"SQLITE_CONSTRAINT_FOREIGNKEY", "23503", "23001"}
"""How databases call the error that another row refers to one that was to be deleted."""
_EMPTIED = {"SQLITE_CONSTRAINT_NOTNULL", "23502"}
"""How they call it if the reference cannot be emptied, among other errors."""
_DEEP = 5
"""So many tables are followed from one that cascades to the next."""


def chains(work: UnitOfWork) -> list[Chain]:
    """The foreign keys of other programs' tables that may refuse to delete rows of persist."""
    tables = [*work.runtime.tables()]
    found: list[Chain] = []
    keys = operations_of(work.runtime.dialect).foreign_references(work.select, tables)

    def follow(schema: str | None, table: str, above: Chain) -> None:
        for key in keys:
            if (key.parent_schema, key.parent) != (schema, table):
                continue
            if key.effect != "cascades":
                found.append((key, *above))
            elif len(above) < _DEEP and all((one.schema, one.table) != (key.schema, key.table) for one in above):
                follow(key.schema, key.table, (key, *above))

    for table in tables if keys else ():
        follow(work.runtime.dialect.schema, table.name, ())
    return found


def check_deferred(work: UnitOfWork) -> None:
    """Let `settled` see what other programs' deferred foreign keys would refuse at the COMMIT."""
    names = sorted({chain[0].deferred for chain in chains(work) if chain[0].deferred is not None})
    work.check_deferred = operations_of(work.runtime.dialect).deferred_check(work.select, names) if names else None


def is_referred(runtime: Runtime, ours: object, error: BaseException) -> bool:
    """Whether the error, as raised or as callers get it (`ours`), may say that another row refers to a deleted one."""
    return isinstance(ours, Conflict) and bool({ours.constraint, runtime.errors.code_of(error)} & (_REFERRED | _EMPTIED))


def refusing(work: UnitOfWork, ours: object, error: BaseException) -> list[Chain]:
    """The foreign keys of other programs' tables that may have met a deletion with this error; none if it is another error."""
    found = chains(work) if is_referred(work.runtime, ours, error) else []
    is_foreign = work.runtime.errors.code_of(error) not in _EMPTIED or any(chain[0].effect == "empties" for chain in found)
    return found if is_foreign else []


@contextmanager
def left_alone(work: UnitOfWork, what: str, *, only_referred: bool = False) -> Iterator[list[Chain]]:
    """Roll the block back, and warn, if a row is unreadable, locked for long, or referred to, for which keys are given."""
    references: list[Chain] = []
    point, journal, written = work.savepoint(), work.journal, len(work.events.written)
    mark = (0, 0) if journal is None else journal.mark()
    try:
        yield references
    except BaseException as error:
        ours = work.runtime.translate(error)
        if point.is_active:  # not after a lost connection
            point.rollback()
        references += refusing(work, ours, error)
        others = isinstance(ours, UnreadableRow | InvalidValue) or type(ours) is StoreBusy
        if not references and (only_referred or not others):
            raise
        if journal is not None:
            journal.rollback_to(mark)
        del work.events.written[written:]
        log.warning("%s is left as it is: %s", what, ours)
    else:
        point.commit()


def settled(work: UnitOfWork, result: T) -> T:
    """The result of deletions, unless a deferred foreign key would refuse them: the last step of a block of `left_alone`."""
    if work.check_deferred is not None:
        work.check_deferred()
    return result


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
