"""Following the log of events: how long an event is under way, what waiting for one costs, and what keeping the log costs.

`python -m benchmarks.events [--url postgresql://…]` measures either database; on Postgres in schemas of its own.
"""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import persist
from benchmarks.measure import Row, heading, interleaved, middle, us

EVENTS = 300
IDLE_SECONDS = 10.0
CHUNKS = 1500
DELTA = "lorem ipsum dolor si"
_STREAM = "bench"


def on_file(folder: Path) -> Iterator[Row]:
    """On SQLite."""
    on, off = (f"sqlite:///{folder / name}.db" for name in ("on", "off"))
    yield from compare((on, None), (off, None), latest=25.0)


def compare(on: tuple[str, str | None], off: tuple[str, str | None], latest: float) -> Iterator[Row]:
    """On two empty databases, as (URL, schema); `latest`: the most milliseconds that an event may be under way."""
    with ExitStack() as stack:
        stores = [
            stack.enter_context(persist.Store.open(url, schema=schema, migrate=True, events=events))
            for (url, schema), events in ((on, True), (off, False))
        ]
        yield from _under_way(stores[0], on, latest)
        yield _idle(stores[0])
        yield from _recording(*stores)


def _under_way(store: persist.Store, on: tuple[str, str | None], latest: float) -> Iterator[Row]:
    """A process commits an event now and then, with the time just before in it; this one notes when it came."""
    command = [sys.executable, "-m", "benchmarks.events", "--write", on[0], *([] if on[1] is None else ["--schema", on[1]])]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as writer:
        late = []
        for event in store.watch(_STREAM, timeout=30):
            late.append((time.monotonic_ns() - event.data) / 1e6)
            if len(late) == EVENTS:
                break
        writer.communicate()
    late = late[20:]
    spread = statistics.quantiles(late, n=100)
    detail = f"{len(late)} events, p50 {spread[49]:.2f} ms, at most {max(late):.2f} ms, the commit included"
    yield Row("from a commit to its reader in another process, p99", spread[98], latest, detail, unit=" ms")


def write(url: str, schema: str | None) -> None:
    """The other process: with pauses after which a reader has slowed down, and without a rhythm it could share."""
    chance = random.Random(0)
    with persist.Store.open(url, schema=schema) as store:
        time.sleep(1)
        for _ in range(EVENTS):
            time.sleep(chance.uniform(0.06, 0.12))
            with store.begin() as tx:
                tx.events.append(_STREAM, "said", time.monotonic_ns())


def _idle(store: persist.Store) -> Row:
    """The processor time of a process in which a thread waits for events that do not come."""
    watching = store.watch("nobody's")
    thread = threading.Thread(target=lambda: list(watching), daemon=True)
    thread.start()
    time.sleep(2)
    used, started = time.process_time(), time.monotonic()
    time.sleep(IDLE_SECONDS)
    share = (time.process_time() - used) / (time.monotonic() - started) * 100
    return Row("a watch that waits, of one core", share, 1.0, f"over {IDLE_SECONDS:.0f} s", unit=" %")


def _recording(on: persist.Store, off: persist.Store) -> Iterator[Row]:
    """The same answer into both, chunk by chunk in turn."""
    with ExitStack() as stack:
        recorders = []
        for store in (on, off):
            with store.begin() as tx:
                session = tx.chat.sessions.create(agent="bench", model={})
            recorder = stack.enter_context(store.record(session.id))
            recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
            recorders.append(recorder)
        chunk = {"type": "text-delta", "id": "t", "delta": DELTA}
        seconds = interleaved(
            {"on": lambda: recorders[0].feed(chunk), "off": lambda: recorders[1].feed(chunk)}, rounds=CHUNKS, warm=50
        )
    ratio, each = middle(seconds["on"]) / middle(seconds["off"]), [us(middle(seconds[name])) for name in ("on", "off")]
    yield Row("a chunk recorded with the log on vs off", ratio, 1.6, f"{each[0]} vs {each[1]}")
    yield Row("  … on average", sum(seconds["on"]) / sum(seconds["off"]), 1.6, f"{us(sum(seconds['on']) / CHUNKS)} each")


def main() -> int:
    """Print the rows for one database."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--url", help="postgresql://…, where two schemas are made; without it SQLite files")
    options.add_argument("--write", metavar="URL", help=argparse.SUPPRESS)
    options.add_argument("--schema", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.write is not None:
        write(given.write, given.schema)
        return 0
    print(heading())
    with tempfile.TemporaryDirectory() as folder:
        rows = on_file(Path(folder))
        if given.url is not None:
            rows = compare((given.url, "bench_events"), (given.url, "bench_events_off"), latest=5.0)
        for row in rows:
            print(row.markdown(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
