"""Following the log of events: how long an event is under way, what waiting for one costs, and what keeping the log costs.

The process that commits events is this module, run with the URL of a database.
"""

import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import persist
from benchmarks.measure import Row, interleaved, middle, us
from benchmarks.place import Place

EVENTS = 200
IDLE_SECONDS = 6.0
CHUNKS = 1500
DELTA = "lorem ipsum dolor si"
_STREAM = "bench"


def rows(place: Place) -> Iterator[Row]:
    """On both databases; on Postgres in schemas of their own."""
    yield from compare((place.file("on"), None), (place.file("off"), None), latest=25.0, where="")
    if place.postgres is not None:
        on, off = (place.postgres, "events_on"), (place.postgres, "events_off")
        yield from compare(on, off, latest=5.0, where="Postgres: ")


def compare(on: tuple[str, str | None], off: tuple[str, str | None], latest: float, where: str) -> Iterator[Row]:
    """On two empty databases, as (URL, schema); `latest`: the most milliseconds that an event may be under way."""
    with ExitStack() as stack:
        stores = [
            stack.enter_context(persist.Store.open(url, schema=schema, migrate=True, events=events))
            for (url, schema), events in ((on, True), (off, False))
        ]
        yield _under_way(stores[0], on, latest, where)
        yield _idle(stores[0], where)
        yield from _recording(stores[0], stores[1], where)


def _under_way(store: persist.Store, on: tuple[str, str | None], latest: float, where: str) -> Row:
    """A process commits an event now and then, with the time just before in it; this one notes when it came."""
    command = [sys.executable, "-m", "benchmarks.events", on[0], *([] if on[1] is None else [on[1]])]
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
    return Row(f"{where}from a commit to its reader in another process, p99", spread[98], latest, detail, unit=" ms")


def write(url: str, schema: str | None) -> None:
    """The other process: with pauses after which a reader has slowed down, and without a rhythm it could share."""
    chance = random.Random(0)
    with persist.Store.open(url, schema=schema) as store:
        time.sleep(1)
        for _ in range(EVENTS):
            time.sleep(chance.uniform(0.06, 0.12))
            with store.begin() as tx:
                tx.events.append(_STREAM, "said", time.monotonic_ns())


def _idle(store: persist.Store, where: str) -> Row:
    """The processor time of a process in which a thread waits for events that do not come."""
    watching = store.watch("nobody's")
    thread = threading.Thread(target=lambda: list(watching), daemon=True)
    thread.start()
    time.sleep(2)
    used, started = time.process_time(), time.monotonic()
    time.sleep(IDLE_SECONDS)
    share = (time.process_time() - used) / (time.monotonic() - started) * 100
    return Row(f"{where}a watch that waits, of one core", share, 1.0, f"over {IDLE_SECONDS:.0f} s", unit=" %")


def _recording(on: persist.Store, off: persist.Store, where: str) -> Iterator[Row]:
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
    yield Row(f"{where}a chunk recorded with the log on vs off", ratio, 1.6, f"{each[0]} vs {each[1]}")
    yield Row("  … on average", sum(seconds["on"]) / sum(seconds["off"]), 1.6, f"{us(sum(seconds['on']) / CHUNKS)} each")


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
