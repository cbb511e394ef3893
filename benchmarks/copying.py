"""Copying a SQLite file into another one, and into Postgres and back, with everything read back and compared.

Small rows (messages of 120 bytes), and rows of workflows (about 300 bytes in 20 columns, some of it JSON).
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import persist
from benchmarks import run_rows
from benchmarks.measure import Row
from benchmarks.place import Place
from persist.maintenance import copy

ROWS = 100_000
GOAL = 20_000  # rows a second
_EXTRA = 3  # a run and its two executions


def rows(place: Place) -> Iterator[Row]:
    """Rows a second, the comparison included, there and back."""
    count = ROWS // 4 if place.quick else ROWS
    for name, fill in (("small rows", _messages), ("workflow runs and executions", _workflows)):
        path = place.folder / f"{fill.__name__}.db"
        source = f"sqlite:///{path}"
        persist.Store.open(source).close()
        fill(path, count)
        yield _copied(f"{name}: into a file", source, place.file(f"copy-of{fill.__name__}"))
        if place.postgres is not None:
            schema = f"copy{fill.__name__}"
            persist.upgrade(place.postgres, schema=schema)
            yield _copied(f"{name}: into Postgres", source, place.postgres, into=schema)
            back = place.file(f"back-from{fill.__name__}")
            yield _copied(f"{name}: from Postgres", place.postgres, back, of=schema)


def _copied(name: str, source: str, target: str, *, of: str | None = None, into: str | None = None) -> Row:
    with persist.Store.open(source, schema=of) as first, persist.Store.open(target, schema=into) as second:
        started = time.perf_counter()
        report = copy(first, second)
        seconds = time.perf_counter() - started
    rows = sum(report.tables.values())
    detail = f"{rows:,} rows in {seconds:.1f} s, {rows / seconds:,.0f} rows/s"
    return Row(name, seconds / rows * 1e6, 1e6 / GOAL, detail, unit=" µs/row")


def _messages(path: Path, rows: int) -> None:
    at = "2026-01-02T03:04:05.678Z"
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(
            "INSERT INTO messaging_sessions (id, platform, channel_id, user_id, created_at, last_activity_at)"
            " VALUES ('mss_1', 'slack', 'C1', 'U1', ?, ?)",
            (at, at),
        )
        raw.executemany(
            "INSERT INTO messaging_messages (session_id, role, timestamp, platform_message_id, content) VALUES (?, ?, ?, ?, ?)",
            (("mss_1", "user", at, str(number), f"Is it deployed? {number} " + "x" * 40) for number in range(rows)),
        )


def _workflows(path: Path, rows: int) -> None:
    run_rows.fill(f"sqlite:///{path}", None, rows // _EXTRA)
