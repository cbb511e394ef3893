"""Following a running answer: how long a chunk is under way, what followers cost while it is silent, and a replay against a list.

The process that records is this module, run with the URL of a database.
"""

import asyncio
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import persist
from benchmarks.measure import Row, interleaved, middle, us
from benchmarks.place import Place

CHUNKS = 150
FOLLOWERS = 1000
IDLE_SECONDS = 6.0
MESSAGES = 500


def rows(place: Place) -> Iterator[Row]:
    """On both databases."""
    yield from compare(place.file("following"), "")
    if place.postgres is not None:
        yield from compare(place.postgres, "Postgres: ")


def compare(url: str, where: str) -> Iterator[Row]:
    """On one empty database."""
    with persist.Store.open(url, migrate=True) as store:
        yield _under_way(store, url, where)
        yield asyncio.run(_idle(store, url, where))
        yield _replay(store, where)


def _under_way(store: persist.Store, url: str, where: str) -> Row:
    """A process feeds a chunk now and then, with the time just before in it; this one notes when it came."""
    session = store.chat.sessions.create(agent="bench", model={})
    late = []
    with subprocess.Popen([sys.executable, "-m", "benchmarks.following", url, session.id]) as recorder:
        while store.chat.sessions.turn(session.id) is None and recorder.poll() is None:
            time.sleep(0.01)
        for chunk in store.follow(session.id):
            if chunk["type"] == "text-delta":
                late += [(time.monotonic_ns() - int(fed)) / 1e6 for fed in chunk["delta"].split()]
    spread = statistics.quantiles(late, n=100)
    detail = f"{len(late)} chunks, p50 {spread[49]:.2f} ms, at most {max(late):.2f} ms, the commit included"
    return Row(f"{where}from a chunk to its follower in another process, p99", spread[98], 50.0, detail, unit=" ms")


def record(url: str, session_id: str) -> None:
    """The other process: chunks without a rhythm that a follower could share."""
    chance = random.Random(0)
    with persist.Store.open(url) as store, store.record(session_id) as recorder:
        recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
        time.sleep(1)
        for _ in range(CHUNKS):
            time.sleep(chance.uniform(0.02, 0.1))
            recorder.feed({"type": "text-delta", "id": "t", "delta": f"{time.monotonic_ns()} "})
        recorder.feed({"type": "finish"})


async def _idle(store: persist.Store, url: str, where: str) -> Row:
    """The processor time of a process in which many followers wait for an answer that is silent."""
    session = store.chat.sessions.create(agent="bench", model={})
    with store.record(session.id) as recorder:
        recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
        async with persist.AsyncStore.open(url) as other:
            followers = [other.follow(session.id) for _ in range(FOLLOWERS)]
            for follower in followers:
                await anext(follower)
                await anext(follower)
            waiting = [asyncio.ensure_future(anext(follower)) for follower in followers]
            await asyncio.sleep(2)
            used, started = time.process_time(), time.monotonic()
            await asyncio.sleep(IDLE_SECONDS)
            share = (time.process_time() - used) / (time.monotonic() - started) * 100
            recorder.feed({"type": "text-delta", "id": "t", "delta": "x"})
            await asyncio.gather(*waiting)
    return Row(f"{where}{FOLLOWERS:,} followers that wait, of one core", share, 1.0, f"over {IDLE_SECONDS:.0f} s", unit=" %")


def _replay(store: persist.Store, where: str) -> Row:
    """Messages of one text part each: their chunks, and the same session as JSON."""
    session = store.chat.sessions.create(agent="bench", model={})
    with store.begin() as tx:
        parts = [{"type": "step-start"}, {"type": "text", "text": "lorem ipsum " * 20, "state": "done"}]
        ids = [tx.chat.messages.append(session.id, role="assistant", parts=parts).id for _ in range(MESSAGES)]

    def replay() -> None:
        with store.read() as tx:
            for id in ids:
                tx.chat.messages.replay(id)

    seconds = interleaved({"replay": replay, "list": lambda: store.chat.messages.list_json(session.id)}, rounds=15)
    ratio = middle(seconds["replay"]) / middle(seconds["list"])
    detail = f"{us(middle(seconds['replay']))} vs {us(middle(seconds['list']))}"
    return Row(f"{where}{MESSAGES} messages replayed one by one vs list_json", ratio, float("inf"), detail)


if __name__ == "__main__":
    record(sys.argv[1], sys.argv[2])
