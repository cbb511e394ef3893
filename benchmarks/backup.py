"""What a backup costs whoever writes meanwhile: latency of transactions of another process, with and without one running."""

import os
import time
from collections.abc import Iterator

from benchmarks.measure import Row, us
from benchmarks.place import Place
from persist import Store
from persist.maintenance import backup
from tests.maintenance.writing import make_sessions, writing

_MEGABYTES = 200
_SECONDS = 4.0
"""Of each half."""


def rows(place: Place) -> Iterator[Row]:
    """Two messages a transaction; first alone for some seconds, then with one backup after the other for as long."""
    url = place.file("state")
    with Store.open(url) as store:
        make_sessions(store)
        for _ in range(_MEGABYTES // 4 if place.quick else _MEGABYTES):
            with store.begin() as tx:
                tx.chat.prompts.put(os.urandom(500_000).hex())
        with writing(url) as alone:
            time.sleep(_SECONDS)
        copies, began = [], time.monotonic()
        with writing(url) as beside:
            while time.monotonic() - began < _SECONDS:
                started = time.monotonic()
                report = backup(store, place.folder / "copy.db", overwrite=True)
                copies.append(time.monotonic() - started)
    quiet, busy = sorted(alone["seconds"]), sorted(beside["seconds"])
    rate = report.bytes / (sum(copies) / len(copies)) / 1e6
    errors = alone["errors"] + beside["errors"]
    yield Row(
        "a write while a backup runs, against one alone, median",
        busy[len(busy) // 2] / quiet[len(quiet) // 2],
        float("inf"),
        f"{us(busy[len(busy) // 2])} against {us(quiet[len(quiet) // 2])}; {rate:,.0f} MB/s copied, {len(copies)} backups",
    )
    yield Row(
        "the same, 99th percentile",
        busy[len(busy) * 99 // 100] / quiet[len(quiet) * 99 // 100],
        float("inf"),
        f"{us(busy[len(busy) * 99 // 100])} against {us(quiet[len(quiet) * 99 // 100])}",
    )
    transactions = len(quiet) + len(busy)
    yield Row("errors of the writer", float(errors), 0.0, f"of {transactions:,} transactions", unit="")
