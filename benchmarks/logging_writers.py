"""What keeping the log of events costs many processes that record at once on one Postgres server, beside the same without it.

A writer is this module, run with the URL of a database, a schema and a number of seconds.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from statistics import quantiles
from time import perf_counter as clock
from typing import Any

from benchmarks.measure import Row
from benchmarks.place import Place
from benchmarks.recording import CHUNK, begin_text
from persist import Store

WRITERS = (1, 4, 16, 32)
SECONDS = 6.0


def rows(place: Place) -> Iterator[Row]:
    """On Postgres: chunks a second by the number of writers, WAL a chunk, and how late events come."""
    if place.postgres is None:
        return
    counts = WRITERS[:2] if place.quick else WRITERS
    for events in (False, True):
        Store.open(place.postgres, schema=_schema(events), migrate=True, events=events).close()
    for count in counts:
        off = measured(place.postgres, count, events=False)
        on = measured(place.postgres, count, events=True)
        each = [f"{found['rate']:,.0f} chunks/s, p99 {found['late'] * 1e3:,.1f} ms" for found in (off, on)]
        goal = 1.3 if count == 16 else float("inf")
        yield Row(f"Postgres: {count} writers, log off / on", off["rate"] / on["rate"], goal, f"{each[0]} / {each[1]}")
        wal = [f"{found['wal']:,.0f} bytes" for found in (on, off)]
        yield Row("  … WAL a chunk, log on / off", on["wal"] / off["wal"], 2.5, f"{wal[0]} / {wal[1]}")
        yield Row("  … from before a commit to a reader of all streams, p99", on["lag"] * 1e3, 100.0, "", unit=" ms")


def measured(url: str, count: int, *, events: bool) -> dict[str, float]:
    """`count` processes record for SECONDS; with the log on this one follows all streams, and a thread of it writes marks."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.logging_writers", url, _schema(events), str(SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    with Store.open(url, schema=_schema(events)) as store:
        lags: list[float] = []
        ended = threading.Event()
        threads = [threading.Thread(target=_follow, args=(store, lags))] if events else []
        for thread in threads:
            thread.start()
        before = _wal(store)
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        if events:
            threads.append(threading.Thread(target=_mark, args=(store, ended)))
            threads[-1].start()
        found = [json.loads(writer.communicate()[0]) for writer in writers]
        used = _wal(store) - before
        ended.set()
        for thread in threads:
            thread.join()
    chunks = sum(one["chunks"] for one in found)
    late = max(one["late"] for one in found)
    lag = quantiles(lags, n=100)[98] if lags else 0.0
    return {"rate": sum(one["chunks"] / one["seconds"] for one in found), "late": late, "wal": used / chunks, "lag": lag}


def _schema(events: bool) -> str:
    return "writers_on" if events else "writers_off"


def _wal(store: Store) -> int:
    with store.runtime.dialect.connections.writer.connect() as connection:
        query = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
        return int(connection.exec_driver_sql(query).scalar_one())


def _mark(store: Store, ended: threading.Event) -> None:
    while not ended.wait(0.03):
        with store.begin() as tx:
            tx.events.append("marks", "marked", time.monotonic_ns())


def _follow(store: Store, lags: list[float]) -> None:
    with store.begin() as tx:
        place = tx.events.consumers.create("measure", at="now").position
        tx.events.consumers.remove("measure")
    for event in store.watch("*", after=place, timeout=SECONDS):
        if event.type == "marked":
            lags.append((time.monotonic_ns() - event.data) / 1e9)


def write(url: str, schema: str, seconds: float) -> None:
    """One writer: ready, then chunks as fast as it can, then how many and the 99th percentile."""
    took: list[float] = []
    with Store.open(url, schema=schema) as store:
        with store.begin() as tx:
            session: Any = tx.chat.sessions.create(agent="bench", model={})
        with store.record(session.id) as recorder:
            begin_text(recorder)
            print("ready", flush=True)
            sys.stdin.readline()
            started = clock()
            while (now := clock()) - started < seconds:
                recorder.feed(CHUNK)
                took.append(clock() - now)
            whole = clock() - started
    print(json.dumps({"chunks": len(took), "seconds": whole, "late": quantiles(took, n=100)[98]}))


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], float(sys.argv[3]))
