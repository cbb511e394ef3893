"""Doing something to see what would come of it."""

from collections.abc import Iterator
from contextlib import contextmanager

from persist.db.work import Work


@contextmanager
def undone(work: Work) -> Iterator[None]:
    """What is done inside is taken back at the end, its events included; the transaction goes on."""
    point, journal, written = work.savepoint(), work.journal, len(work.written)
    mark = (0, 0) if journal is None else journal.mark()
    try:
        yield
    finally:
        if point.is_active:  # not after a lost connection
            point.rollback()
        if journal is not None:
            journal.back(mark)
        del work.written[written:]
