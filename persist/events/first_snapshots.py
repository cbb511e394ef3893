"""The snapshots that follow switching the log on: one of each stream, while others write.

Small streams get theirs together, a large one and one that many writers share alone. `_meta` says how far they are, so that a
switch that was killed is gone on with.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Table, delete, func, select

from persist.db.expressions.upsert import upsert
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import StoreBusy, UnreadableRow
from persist.events.models import event_log
from persist.events.settling import settled_now
from persist.events.small_snapshots import write_together
from persist.events.snapshots import every_stream, write_locked_snapshot

Run = Callable[[Callable[[UnitOfWork], Any]], Any]
"""Runs a step in a transaction of its own, and returns what it returns."""

Tell = Callable[[int, int], object]
Place = tuple[str, str]
"""Where among the streams one is, which sorts as its snapshots are written, and its name."""

SNAPSHOTS = "events_snapshots"
"""The key of `_meta` that says how far the snapshots are; see Progress."""
LEFT = "events_snapshots_left"
"""The key of `_meta` for the places of the streams that have no snapshot yet because one of their rows cannot be read."""
PATIENCE = 60.0
"""Seconds for which a step is tried again that would have kept other writers waiting."""
_TOGETHER = 50
"""Small streams whose snapshots are written in one transaction: their writers wait for it."""
_GIVES_WAY = 0.05
"""Seconds at most for which a file is left to other writers between two transactions, each as long as the one before it."""
_SHARED, _OTHER = "0", "1"

_meta = table_of(Meta)
NOTE = Statement(upsert(_meta, "key"))
FORGET = Statement(delete(_meta).where(_meta.c.key == param("row_key")))
LAST = Statement(select(func.coalesce(func.max(event_log.c.position), 0)))
_LEFT = Statement(select(_meta.c.value).where(_meta.c.key == LEFT))
_PROGRESS = Statement(select(_meta.c.value).where(_meta.c.key == SNAPSHOTS))
_PROGRESS_LOCKED = Statement(select(_meta.c.value).where(_meta.c.key == SNAPSHOTS).with_for_update())


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the snapshots are that follow switching the log on.

    since    the position after which every change of a row is an event
    after    where among the streams the last one is of which there is a snapshot; empty before the first
    streams  how many streams have been looked at
    upto     the position of the last snapshot once all are written; None before
    """

    since: int
    after: str = ""
    streams: int = 0
    upto: int | None = None


def write_missing(run: Run, tables: Sequence[Table], tell: Tell | None) -> None:
    """Write the snapshots that are missing. Several processes may do so at once.

    A row that cannot be read keeps back the snapshot of its stream alone. UnreadableRow is raised after the others are written.
    """
    if run(progress_of).since == 0:
        last = run(lambda work: work.row(LAST))[0]
        deadline = time.monotonic() + PATIENCE
        while run(settled_now) < last:  # a writer without the log may still be on its way
            if time.monotonic() > deadline:
                raise StoreBusy(PATIENCE, "another transaction has written events and goes on")
            time.sleep(0.01)
        run(lambda work: _locked_note(work, lambda old: Progress(since=last, after=old.after, streams=old.streams)))
    refused: list[UnreadableRow] = []
    left, before = _places(run, tables, refused), run(progress_of)
    done = 0 if before is None else before.streams
    total, gives_way = done + len(left), run(lambda work: work.runtime.dialect.one_writer)
    for group in _groups(left):
        if tell is not None:
            tell(done, total)
        began = time.monotonic()
        if not _write_group(run, group, tables, refused):
            return
        done += len(group)
        if gives_way:  # who waits for the lock of the whole file asks for it now and then, and would always find it taken
            time.sleep(min(time.monotonic() - began, _GIVES_WAY))
    if refused:
        raise refused[0]
    run(_finish)


def _places(run: Run, tables: Sequence[Table], refused: list[UnreadableRow]) -> list[Place]:
    """The streams that are left, in the order of their snapshots. An error is added for a stream whose name cannot be read."""
    shared, others = run(lambda work: every_stream(work, tables, refused))
    places = [(_SHARED + stream, stream) for stream in sorted(shared)] + [(_OTHER + stream, stream) for stream in sorted(others)]
    progress, left = run(progress_of), run(_left)
    return [] if progress is None else [found for found in places if found[0] > progress.after or found[0] in left]


def _groups(places: Sequence[Place]) -> Iterator[Sequence[Place]]:
    alone = sum(place.startswith(_SHARED) for place, _ in places)
    yield from ([place] for place in places[:alone])
    yield from (places[at : at + _TOGETHER] for at in range(alone, len(places), _TOGETHER))


def _write_group(run: Run, group: Sequence[Place], tables: Sequence[Table], refused: list[UnreadableRow]) -> bool:
    """Write the snapshots of these streams, one by one if they do not go together. False: another process has finished."""
    if len(group) > 1:
        try:
            if (written := run(partial(_write, group=group, tables=tables))) is not None:
                return bool(written)
        except UnreadableRow:
            pass  # which of them has the row is found below
    for one in group:
        try:
            if not run(partial(_write, group=[one], tables=tables)):
                return False
        except UnreadableRow as error:
            refused.append(error)
            run(partial(_leave, place=one[0]))
    return True


def _write(work: UnitOfWork, group: Sequence[Place], tables: Sequence[Table]) -> bool | None:
    """Write the snapshots that are missing of these streams. False: all are written. None: they are too large to go together."""
    progress = _locked(work)
    if progress is None or progress.upto is not None:
        return False
    left = _left(work)
    missing = [(place, stream) for place, stream in group if place > progress.after or place in left]
    if not missing:
        return True
    if len(group) == 1:
        write_locked_snapshot(work, missing[0][1], tables)
    elif not write_together(work, [stream for _, stream in missing], tables):
        return None
    places = [place for place, _ in missing]
    note_progress(work, Progress(progress.since, max(*places, progress.after), progress.streams + len(missing)))
    _note_left(work, left, left.difference(places))
    return True


def _leave(work: UnitOfWork, place: str) -> None:
    """Go on behind a stream whose snapshot cannot be written; the next switch tries it again."""
    progress = _locked(work)
    if progress is not None and progress.upto is None:
        note_progress(work, Progress(progress.since, max(place, progress.after), progress.streams))
        left = _left(work)
        _note_left(work, left, left | {place})


def _left(work: UnitOfWork) -> frozenset[str]:
    row = work.row(_LEFT)
    return frozenset(() if row is None else json.loads(row[0]))


def _note_left(work: UnitOfWork, before: frozenset[str], left: frozenset[str]) -> None:
    if left == before:
        return
    if left:
        work.run(NOTE, key=LEFT, value=json.dumps(sorted(left)))
    else:
        work.run(FORGET, row_key=LEFT)


def _finish(work: UnitOfWork) -> None:
    last = work.row(LAST)
    assert last is not None
    _locked_note(work, lambda old: Progress(old.since, old.after, old.streams, last[0]))


def _locked_note(work: UnitOfWork, change: Callable[[Progress], Progress]) -> None:
    progress = _locked(work)
    if progress is not None and progress.upto is None:
        note_progress(work, change(progress))


def progress_of(work: UnitOfWork) -> Progress | None:
    """How far the snapshots are; None if the log is off, or an older release has switched it on."""
    return _read(work.row(_PROGRESS))


def _locked(work: UnitOfWork) -> Progress | None:
    return _read(work.row(_PROGRESS_LOCKED))


def _read(row: Sequence[Any] | None) -> Progress | None:
    return None if row is None else Progress(**json.loads(row[0]))


def note_progress(work: UnitOfWork, progress: Progress) -> None:
    """Store how far the snapshots are."""
    text = json.dumps({name: getattr(progress, name) for name in ("since", "after", "streams", "upto")})
    work.run(NOTE, key=SNAPSHOTS, value=text)
