"""Copying a SQLite file into Postgres and back, with everything read back and compared.

`python -m benchmarks.copying [--rows N] [--url postgresql://…]`: N small rows (messages of 120 bytes), then as many of workflows
(about 300 bytes in 20 columns, some of it JSON). Without a URL between two files. On Postgres in a schema of its own, dropped
afterwards.
"""

import argparse
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
from psycopg import sql

import persist
from benchmarks import run_rows
from benchmarks.measure import Row, heading
from persist.maintenance import copy

ROWS = 200_000
GOAL = 20_000  # rows a second
SCHEMA = "bench_copying"
_EXTRA = 3  # a run and its two executions


def moving(folder: Path, rows: int = ROWS, url: str | None = None) -> Iterator[Row]:
    """Rows a second, the comparison included, there and back."""
    for name, fill in (("small rows", _messages), ("workflow runs and executions", _workflows)):
        path = folder / f"{fill.__name__}.db"
        persist.Store.open(f"sqlite:///{path}").close()
        fill(path, rows)
        yield from _there_and_back(folder, path, name, url)


def _there_and_back(folder: Path, path: Path, name: str, url: str | None) -> Iterator[Row]:
    middle = url or f"sqlite:///{folder / 'middle.db'}"
    schema = None if url is None else SCHEMA
    back = f"sqlite:///{folder / 'back.db'}"
    try:
        if url is not None:
            persist.upgrade(url, schema=schema)
        kind = middle.partition(":")[0]
        yield _copied(f"{name}: into {kind}", f"sqlite:///{path}", middle, None, schema, 1e6 / GOAL)
        yield _copied(f"{name}: from {kind}", middle, back, schema, None, float("inf"))
    finally:
        if url is not None:
            with psycopg.connect(url) as raw:
                raw.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(SCHEMA)))
        for left in (*folder.glob("middle.db*"), *folder.glob("back.db*")):
            left.unlink()


def _copied(name: str, source: str, target: str, of: str | None, into: str | None, goal: float) -> Row:
    with persist.Store.open(source, schema=of) as first, persist.Store.open(target, schema=into) as second:
        started = time.perf_counter()
        report = copy(first, second)
        seconds = time.perf_counter() - started
    rows = sum(report.tables.values())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    detail = f"{rows:,} rows in {seconds:.1f} s, {rows / seconds:,.0f} rows/s; peak of the process so far {memory} MiB"
    return Row(name, seconds / rows * 1e6, goal, detail, unit=" µs/row")


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


def main() -> int:
    """Print the rows for one pair of databases."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=ROWS)
    options.add_argument("--url", help="postgresql://…, where a schema is made; without it SQLite files")
    given = options.parse_args()
    print(heading())
    with tempfile.TemporaryDirectory() as folder:
        for row in moving(Path(folder), given.rows, given.url):
            print(row.markdown(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
