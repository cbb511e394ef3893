"""Switching the event log on and off for all writers of a database.

The log is on if a row of `_meta` says so. Triggers in the database, the guard, then refuse writes that are not logged: a log
that some writers skip is worse than none. A store that is refused this way keeps the log from then on.

No step keeps other writers waiting for long: the switch, the guard of each table and the snapshot of each stream have
transactions of their own. `_meta` says how far they are, so that a switch that was killed is gone on with. Until every table is
guarded the row has another value than the database's revision.
"""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from sqlalchemy import Table, bindparam, func, select, update

from persist.db.changes.journal import logged_tables
from persist.db.expressions.positions import last_position, raised_sequence, switch_lock
from persist.db.expressions.upsert import merge
from persist.db.schema.base import table_of
from persist.db.schema.column_types import Int64
from persist.db.schema.meta_table import Meta
from persist.db.statements.prepared import Statement, param
from persist.db.statements.schema_version import EVENTS, GUARDING
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import NotPermitted, StoreBusy
from persist.events.first_snapshots import (
    FORGET,
    LAST,
    LEFT,
    NOTE,
    PATIENCE,
    SNAPSHOTS,
    Progress,
    Run,
    Tell,
    note_progress,
    progress_of,
    write_missing,
)
from persist.events.models import LOG_TABLES, event_consumers, event_heads, event_positions
from persist.events.schemas import ALL
from persist.events.snapshots import every_stream

R = TypeVar("R")

_TOGETHER = 8
"""Tables that are guarded in one transaction if nobody writes to them."""

_meta = table_of(Meta)
_H = event_heads.c
_ON = Statement(select(_meta.c.value).where(_meta.c.key == EVENTS))
_REVISION = Statement(select(_meta.c.value).where(_meta.c.key == "schema_version"))
_COUNTER = Statement(select(_H.logging, _H.seq, _H.settled).where(_H.stream_id == ALL).with_for_update())
_COUNT = Statement(
    merge(event_heads, "stream_id", seq="new", logging="new").values(stream_id=ALL, seq=param("seq"), logging=True)
)
_RAISE = Statement(select(raised_sequence(event_positions, bindparam("last_used", type_=Int64()))))
_LAST_TAKEN = Statement(select(last_position(event_positions)))
_TAKE = Statement(update(event_heads).where(_H.stream_id == ALL).values(settled=param("upto")))
_LAST_PLACE = Statement(select(func.coalesce(func.max(event_consumers.c.position), 0)))
_SWITCH = Statement(select(switch_lock(event_positions)))
_STOP = Statement(update(event_heads).where(_H.stream_id == ALL).values(logging=False, settled=None, seq=param("last_used")))


def is_unfinished(work: UnitOfWork) -> bool:
    """Whether snapshots are missing of a log that was switched on, or it has perhaps not been switched wholly."""
    progress = progress_of(work)
    return _noted(work)[0] == GUARDING or (progress is not None and progress.upto is None)


def switch_on(run: Run, work_tables: Sequence[Table], logs: Callable[[], None], tell: Tell | None = None) -> bool:
    """Switch the log on for all; False if it was on. `logs`: called when this store has to log; `tell`: after each snapshot."""
    tables = logged_tables(work_tables)
    noted, revision = run(_noted)
    if noted != revision:
        run(lambda work: _check(work, tables))
        takes_triggers = _patiently(run, lambda work: _begin(work, fresh=noted is None))
        logs()
        if takes_triggers:
            for at in range(0, len(tables), _TOGETHER):
                _guard_each(run, tables[at : at + _TOGETHER])
        run(_guarded)
    else:
        run(take_positions)  # a sequence may have been left behind: no logical replica copies one
    progress = run(progress_of)
    if progress is None or progress.upto is not None:
        return noted is None
    write_missing(run, tables, tell)
    return True


def _noted(work: UnitOfWork) -> tuple[str | None, str]:
    noted, revision = work.row(_ON), work.row(_REVISION)
    assert revision is not None, "an open store has its revision noted"
    return (None if noted is None else noted[0]), revision[0]


def _check(work: UnitOfWork, tables: Sequence[Table]) -> None:
    work.whole_tables.check_guard(tables, on=True)
    every_stream(work, tables, [])  # none may be called as all streams together


def _begin(work: UnitOfWork, *, fresh: bool) -> bool:
    """Let stores that open, or are refused, log from this commit on, by positions of the sequence. False: no triggers here."""
    work.whole_tables.be_brief()
    counter = work.row(_COUNTER)
    takes_triggers = work.whole_tables.number_events(LOG_TABLES)
    noted, _ = _noted(work)
    begins = noted is None or counter is None or not counter[0]
    if begins:
        last = work.row(LAST)
        assert last is not None
        work.run(_COUNT, seq=max(last[0], 0 if counter is None else counter[1]))
    take_positions(work)
    if begins and fresh:
        note_progress(work, Progress(since=0))
    work.run(NOTE, key=EVENTS, value=GUARDING)
    return takes_triggers


def take_positions(work: UnitOfWork) -> None:
    """Give positions by the sequence from now on, above all that were given; on SQLite by the count."""
    counter, last = work.row(_COUNTER), work.row(LAST)
    if counter is None or last is None:
        return
    place = work.row(_LAST_PLACE)
    used = max(last[0], counter[1], counter[2] or 0, 0 if place is None else place[0])
    if work.runtime.dialect.one_writer:
        if counter[2] is not None:
            work.run(_COUNT, seq=used)
            work.run(_TAKE, upto=None)
        return
    if used:
        work.row(_RAISE, last_used=used)
    if counter[2] is None:
        work.run(_TAKE, upto=used)


def _guard_each(run: Run, tables: Sequence[Table]) -> None:
    """Guard tables together, or one by one where somebody writes."""
    try:
        run(lambda work: _guard(work, tables, at_once=True))
    except StoreBusy:
        for table in tables:
            _patiently(run, partial(_guard, tables=[table]))


def _guard(work: UnitOfWork, tables: Sequence[Table], *, at_once: bool = False) -> None:
    """The lock waits for transactions that wrote to a table without logging."""
    work.whole_tables.be_brief(at_once=at_once)
    work.whole_tables.lock(tables)
    work.whole_tables.guard(tables, LOG_TABLES)


def _guarded(work: UnitOfWork) -> None:
    noted, revision = _noted(work)
    if noted is not None:
        work.run(NOTE, key=EVENTS, value=revision)


def switch_off(run: Run, work_tables: Sequence[Table]) -> bool:
    """Switch the log off for every writer. Its events are kept. False if it was off."""
    tables = logged_tables(work_tables)
    if not run(is_on):
        return False
    run(lambda work: work.whole_tables.check_guard(tables, on=False))
    run(lambda work: work.run(NOTE, key=EVENTS, value=GUARDING))
    with suppress(NotPermitted):  # who owns the guards' functions and no table drops all guards at once, with the functions
        for table in tables:  # stores that know that the log is on go on logging
            _patiently(run, partial(_unguard, table=table))
    return bool(_patiently(run, _stop))


def _unguard(work: UnitOfWork, table: Table) -> None:
    if not work.whole_tables.unguarded([table]):
        work.whole_tables.be_brief()
        work.whole_tables.drop_guard([table])


def _stop(work: UnitOfWork) -> bool:
    work.whole_tables.be_brief()
    work.row(_SWITCH)
    counter, last = work.row(_COUNTER), work.row(LAST)
    if not is_on(work) or counter is None or last is None:
        return False
    taken = work.row(_LAST_TAKEN)
    work.run(_STOP, last_used=max(counter[1], last[0], (taken and taken[0]) or 0))
    work.whole_tables.drop_guards()
    for key in (EVENTS, SNAPSHOTS, LEFT):
        work.run(FORGET, row_key=key)
    return True


def _patiently(run: Run, step: Callable[[UnitOfWork], R]) -> R:
    """Try a step again that found a lock taken: nobody is to wait behind it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            found: R = run(step)
            return found
        except StoreBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.02, 0.1))


def is_on(work: UnitOfWork) -> bool:
    """Whether the database's log is on."""
    return work.row(_ON) is not None
