"""Switching the event log on and off for all writers of a database.

The log is on if a row of `_meta` says so. Triggers in the database, the guard, then refuse writes that are not logged: a log
that some writers skip is worse than none. A store that is refused this way keeps the log from then on.
"""

from sqlalchemy import delete, func, select, update

from persist.db.changes.event_streams import logged_tables
from persist.db.expressions.upsert import merge, upsert
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.statements.prepared import Statement, param
from persist.db.statements.schema_version import EVENTS
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.events.models import LOG_TABLES, event_heads, event_log
from persist.events.schemas import ALL
from persist.events.snapshots import write_snapshots

_meta = table_of(Meta)
_H = event_heads.c
_ON = Statement(select(_meta.c.value).where(_meta.c.key == EVENTS))
_REVISION = Statement(select(_meta.c.value).where(_meta.c.key == "schema_version"))
_NOTE = Statement(upsert(_meta, "key"))
_FORGET = Statement(delete(_meta).where(_meta.c.key == EVENTS))
_LOGGING = Statement(select(_H.logging).where(_H.stream_id == ALL).with_for_update())
_COUNT = Statement(merge(event_heads, "stream_id", logging="new").values(stream_id=ALL, seq=param("seq"), logging=True))
_LAST = Statement(select(func.coalesce(func.max(event_log.c.position), 0)))
_STOP = Statement(update(event_heads).where(_H.stream_id == ALL).values(logging=False))


def switch_on(work: UnitOfWork) -> bool:
    """Switch the log on for every writer, from this transaction's commit on. False if it was on.

    Existing rows are logged as one snapshot of each stream.
    """
    tables = logged_tables(work.runtime.tables())
    if work.row(_ON) != work.row(_REVISION):
        work.whole_tables.check_guard(tables, on=True)
    work.whole_tables.lock(tables)
    revision, noted, counting = work.row(_REVISION), work.row(_ON), work.row(_LOGGING)
    assert revision is not None, "an open store has its revision noted"
    was_on = noted is not None and counting is not None and bool(counting[0])
    if was_on and noted == revision:
        return False
    if not was_on:
        last = work.row(_LAST)
        assert last is not None
        work.run(_COUNT, seq=last[0])
        work.runtime.keep_log(True)
        write_snapshots(work, tables)
    work.whole_tables.guard(tables, LOG_TABLES)
    work.run(_NOTE, key=EVENTS, value=revision[0])
    return not was_on


def switch_off(work: UnitOfWork) -> bool:
    """Switch the log off for every writer. Its events are kept. False if it was off."""
    tables = logged_tables(work.runtime.tables())
    if is_on(work):
        work.whole_tables.check_guard(tables, on=False)
    work.whole_tables.lock(tables)
    if not is_on(work):
        return False
    work.run(_STOP)
    work.whole_tables.drop_guard()
    work.run(_FORGET)
    return True


def is_on(work: UnitOfWork) -> bool:
    """Whether the database's log is on."""
    return work.row(_ON) is not None
