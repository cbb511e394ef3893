"""Switching the log on and off for everybody who writes to a database.

It is on where `_meta` says so. Whoever writes without keeping it is refused by a guard in the database itself: a log that some
writers skip is worse than none. A store that finds out that way keeps the log from then on.
"""

from sqlalchemy import delete, func, select, update

from persist.db.base import table_of
from persist.db.hot import Hot, param
from persist.db.insert import merge, upsert
from persist.db.models import Meta
from persist.db.streams import logged_tables
from persist.db.version import EVENTS
from persist.db.work import Work
from persist.events.models import event_heads, event_log
from persist.events.schemas import ALL
from persist.events.snapshots import write_snapshots

_meta = table_of(Meta)
_H = event_heads.c
_ON = Hot(select(_meta.c.value).where(_meta.c.key == EVENTS))
_REVISION = Hot(select(_meta.c.value).where(_meta.c.key == "schema_version"))
_NOTE = Hot(upsert(_meta, "key"))
_FORGET = Hot(delete(_meta).where(_meta.c.key == EVENTS))
_LOGGING = Hot(select(_H.logging).where(_H.stream_id == ALL).with_for_update())
_COUNT = Hot(merge(event_heads, "stream_id", logging="new").values(stream_id=ALL, seq=param("seq"), logging=True))
_LAST = Hot(select(func.coalesce(func.max(event_log.c.position), 0)))
_STOP = Hot(update(event_heads).where(_H.stream_id == ALL).values(logging=False))


def switch_on(work: Work) -> bool:
    """From the end of this transaction on every writer keeps the log; False where it was on.

    What the tables hold already becomes one snapshot of each stream.
    """
    tables = logged_tables(work.runtime.tables())
    if work.row(_ON) != work.row(_REVISION):
        work.check_guard(tables, on=True)
    work.lock_tables(tables)
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
    work.guard(tables, on=True)
    work.run(_NOTE, key=EVENTS, value=revision[0])
    return not was_on


def switch_off(work: Work) -> bool:
    """Nobody keeps the log from now on; what it holds stays. False where it was off."""
    tables = logged_tables(work.runtime.tables())
    if is_on(work):
        work.check_guard(tables, on=False)
    work.lock_tables(tables)
    if not is_on(work):
        return False
    work.run(_STOP)
    work.guard(tables, on=False)
    work.run(_FORGET)
    return True


def is_on(work: Work) -> bool:
    """Whether the database says so."""
    return work.row(_ON) is not None
