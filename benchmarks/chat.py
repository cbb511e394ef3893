"""Recording, reading and opening on SQLite."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.floors import DeltaRows, InPlaceRewrite, connect, transcript
from benchmarks.measure import Row, interleaved, middle, us
from persist import AsyncStore, Store

DELTA = "lorem ipsum dolor si"
CHUNKS = 2000  # 40 KB


def chunks(folder: Path) -> Iterator[Row]:
    """A 40 KB answer in 20-character chunks, one commit each."""
    rewrite, deltas = InPlaceRewrite(folder / "rewrite.db"), DeltaRows(folder / "deltas.db")
    with Store.open(f"sqlite:///{folder / 'chunks.db'}") as store:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="bench", model={})
        with store.record(session.id) as recorder:
            recorder.feed({"type": "start"})
            recorder.feed({"type": "text-start", "id": "t"})
            seconds = interleaved(
                {
                    "rewrite": lambda: rewrite.chunk(DELTA),
                    "deltas": lambda: deltas.chunk(DELTA),
                    "persist": lambda: recorder.feed({"type": "text-delta", "id": "t", "delta": DELTA}),
                },
                rounds=CHUNKS,
                warm=0,
            )
    whole = {name: sum(values) for name, values in seconds.items()}
    each = us(whole["persist"] / CHUNKS)
    yield Row(
        "40 KB answer, commit per chunk, vs raw in-place rewrite", whole["persist"] / whole["rewrite"], 0.5, f"{each} a chunk"
    )
    floor = us(whole["deltas"] / CHUNKS)
    yield Row("  … the raw delta row beside it", whole["deltas"] / whole["rewrite"], float("inf"), f"{floor} a chunk")
    early, late = middle(seconds["persist"][25:75]), middle(seconds["persist"][-100:])
    yield Row("chunk at 40 KB vs at 1 KB", late / early, 1.5, f"{us(early)} -> {us(late)}")


def reading(folder: Path) -> Iterator[Row]:
    """A session of 500 messages with 5 parts each."""
    path = folder / "reading.db"
    with Store.open(f"sqlite:///{path}") as store:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="bench", model={})
            parts = [{"type": "text", "text": "lorem ipsum " * 40, "state": "done"} for _ in range(5)]
            for number in range(500):
                tx.chat.messages.append(session.id, role="assistant", parts=parts, metadata={"number": number})
        raw = connect(path)

        def to_dicts() -> None:
            with store.read() as tx:
                tx.chat.messages.list(session.id)

        def to_wire() -> None:
            with store.read() as tx:
                tx.chat.messages.list_json(session.id)

        seconds = interleaved({"raw": lambda: transcript(raw, session.id), "dicts": to_dicts, "wire": to_wire}, rounds=60)
        raw.close()
    floor = middle(seconds["raw"])
    for name, goal in (("dicts", 1.5), ("wire", float("inf"))):
        ratio = middle(seconds[name]) / floor
        yield Row(
            f"500 messages x 5 parts to {name} vs raw rows + orjson", ratio, goal, f"{us(middle(seconds[name]))} vs {us(floor)}"
        )


def opening(folder: Path) -> Iterator[Row]:
    """Opening a current file, and making a new one."""
    current = f"sqlite:///{folder / 'current.db'}"
    Store.open(current).close()
    fresh = iter(range(10_000))

    def open_and_close(url: str) -> float:
        started = time.perf_counter()
        store = Store.open(url)
        elapsed = time.perf_counter() - started
        store.close()
        return elapsed

    seconds = interleaved(
        {
            "current": lambda: open_and_close(current),
            "new": lambda: open_and_close(f"sqlite:///{folder / f'new-{next(fresh)}.db'}"),
        },
        rounds=30,
    )
    yield Row("opening a current file", middle(seconds["current"]) * 1e3, 3.0, "in process", unit=" ms")
    yield Row("making a new file", middle(seconds["new"]) * 1e3, float("inf"), "in process", unit=" ms")


def faces(folder: Path) -> Iterator[Row]:
    """A write transaction of three statements on both faces, and streams recorded at the same time."""
    url = f"sqlite:///{folder / 'faces.db'}"
    store = Store.open(url)
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="bench", model={})
    numbers = iter(range(1_000_000))

    def one_verb() -> float:
        started = time.perf_counter()
        with store.begin() as tx:
            tx.chat.sessions.update_metadata(session.id, {"number": next(numbers)})
        return time.perf_counter() - started

    def three_verbs() -> float:
        started = time.perf_counter()
        with store.begin() as tx:
            tx.chat.sessions.get(session.id)
            tx.chat.sessions.get(session.id)
            tx.chat.prompts.put(f"prompt {next(numbers)}")
        return time.perf_counter() - started

    async def one_async_verb(other: AsyncStore) -> float:
        started = time.perf_counter()
        async with other.begin() as tx:
            await tx.chat.sessions.update_metadata(session.id, {"number": next(numbers)})
        return time.perf_counter() - started

    async def three_async_verbs(other: AsyncStore) -> float:
        started = time.perf_counter()
        async with other.begin() as tx:
            await tx.chat.sessions.get(session.id)
            await tx.chat.sessions.get(session.id)
            await tx.chat.prompts.put(f"prompt {next(numbers)}")
        return time.perf_counter() - started

    async def all_four() -> list[list[float]]:
        async with AsyncStore.open(url) as other:
            rounds = [
                (one_verb(), await one_async_verb(other), three_verbs(), await three_async_verbs(other)) for _ in range(400)
            ]
        return [list(times) for times in zip(*rounds[50:], strict=True)]

    one, one_async, three, three_async = (middle(times) for times in asyncio.run(all_four()))
    name = "write transaction of three statements, AsyncStore vs Store"
    yield Row(f"{name}, in one verb", one_async / one, 4.0, f"{us(one_async)} vs {us(one)}")
    yield Row(f"{name}, in three verbs", three_async / three, 4.0, f"{us(three_async)} vs {us(three)}")
    store.close()
    single = asyncio.run(_streams(url, 1))
    for streams in (1, 16):
        each = single if streams == 1 else asyncio.run(_streams(url, streams))
        yield Row(f"chunk of {streams} concurrent async streams vs of one", each / single, float("inf"), f"{us(each)} a chunk")


async def _streams(url: str, streams: int) -> float:
    """Seconds per acknowledged chunk."""
    async with AsyncStore.open(url) as store:
        async with store.begin() as tx:
            sessions = [await tx.chat.sessions.create(agent="bench", model={}) for _ in range(streams)]

        async def stream(session_id: str) -> None:
            async with store.record(session_id) as recorder:
                await recorder.feed({"type": "start"})
                await recorder.feed({"type": "text-start", "id": "t"})
                for _ in range(1600 // streams):
                    await recorder.feed({"type": "text-delta", "id": "t", "delta": DELTA})

        started = time.perf_counter()
        await asyncio.gather(*(stream(session.id) for session in sessions))
        return (time.perf_counter() - started) / (1600 // streams * streams)
