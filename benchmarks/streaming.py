"""Many answers recorded on one event loop, each stream waiting until its chunk is durable."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import persist
from benchmarks.floors import DeltaRowsOnServer, InPlaceRewrite
from benchmarks.goals import reached
from benchmarks.measure import AsyncOperation, Row, interleaved_async, middle, us
from benchmarks.place import Place
from benchmarks.recording import CHUNK, DELTA
from persist import AsyncStore
from persist.chat.recording.async_recorder import AsyncRecorder

PART = "x" * 2000
"""The text that the floor rewrites for every chunk."""

BATCH = 64
"""Chunks of all streams together before the next alternative has its turn."""

ROUNDS = 40


def rows(place: Place) -> Iterator[Row]:
    """On both databases."""
    rounds = ROUNDS // 4 if place.quick else ROUNDS
    yield from asyncio.run(_on_file(place, rounds))
    if place.postgres is not None:
        persist.upgrade(place.postgres)
        yield from asyncio.run(_on_server(place.postgres, rounds // 2))


async def _on_file(place: Place, rounds: int) -> list[Row]:
    found = []
    rewrite = InPlaceRewrite(place.folder / "rewrite.db")
    rewrite.begin(PART)

    async def inline(chunks: int) -> None:
        """The statement runs on the loop; then whoever else is ready has a turn."""
        for _ in range(chunks):
            rewrite.chunk("")
            await asyncio.sleep(0)

    async def rewritten(streams: int) -> None:
        await asyncio.gather(*(inline(_share(streams)) for _ in range(streams)))

    async with AsyncStore.open(place.file("streams")) as store:
        for streams in (1, 16, 128):
            async with _recorders(store, streams) as recorders:
                alternatives: dict[str, AsyncOperation] = {
                    "persist": partial(_feed, recorders),
                    "raw": partial(rewritten, streams),
                }
                taken = await interleaved_async(alternatives, rounds=rounds)
            total = _share(streams) * streams
            ours, floor = middle(taken["persist"]) / total, middle(taken["raw"]) / total
            detail = f"{us(ours)} a chunk vs {us(floor)}"
            if streams == 128:
                found.append(Row("the same, 128 streams together", ours / floor, float("inf"), detail))
            else:
                found.append(reached(f"async-{streams}", ours / floor, detail))
    return found


async def _on_server(url: str, rounds: int) -> list[Row]:
    deltas = DeltaRowsOnServer(url)
    deltas.begin()
    found = []

    async def raw() -> None:
        for _ in range(BATCH):
            deltas.chunk(DELTA)

    async with AsyncStore.open(url) as store:
        for streams in (1, 32):
            async with _recorders(store, streams) as recorders:
                taken = await interleaved_async({"persist": partial(_feed, recorders), "raw": raw}, rounds=rounds)
            ours, floor = middle(taken["persist"]) / (_share(streams) * streams), middle(taken["raw"]) / BATCH
            detail = f"{us(ours)} a chunk vs {us(floor)}"
            if streams == 32:
                found.append(reached("async-32-postgres", ours / floor, detail))
            else:
                found.append(Row("Postgres: 1 async stream vs one raw delta insert", ours / floor, float("inf"), detail))
    deltas.connection.close()
    return found


def _share(streams: int) -> int:
    """Chunks of one stream in its turn."""
    return max(4, BATCH // streams)


async def _feed(recorders: Sequence[AsyncRecorder]) -> None:
    async def stream(recorder: AsyncRecorder) -> None:
        for _ in range(_share(len(recorders))):
            await recorder.feed(CHUNK)

    await asyncio.gather(*(stream(recorder) for recorder in recorders))


@asynccontextmanager
async def _recorders(store: AsyncStore, streams: int) -> AsyncIterator[list[AsyncRecorder]]:
    """As many sessions, each with a text that has begun."""
    async with store.begin() as tx:
        sessions = [await tx.chat.sessions.create(agent="bench", model={}) for _ in range(streams)]
    async with AsyncExitStack() as stack:
        recorders = [await stack.enter_async_context(store.record(session.id)) for session in sessions]
        for recorder in recorders:
            await recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
        yield recorders
