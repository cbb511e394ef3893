"""Doing something to see what would come of it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from persist.db.work import Work
from persist.errors import InvalidValue, PayloadTooLarge, UnreadableRow

log = logging.getLogger("persist")


@contextmanager
def left_alone(work: Work, what: str) -> Iterator[None]:
    """What is done inside is taken back where a row cannot be read, and that is reported: others of its kind go on.

    A row whose labels cannot be bound again, such as one with a NUL, is such a row, too.
    """
    point, journal, written = work.savepoint(), work.journal, len(work.written)
    mark = (0, 0) if journal is None else journal.mark()
    try:
        yield
    except (UnreadableRow, InvalidValue, PayloadTooLarge) as error:
        point.rollback()
        if journal is not None:
            journal.back(mark)
        del work.written[written:]
        log.warning("%s is left as it is: %s", what, error)
    except BaseException:
        if point.is_active:
            point.rollback()
        raise
    else:
        point.commit()


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
