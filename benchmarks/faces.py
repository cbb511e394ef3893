"""A write transaction of three statements on both faces of a store."""

import asyncio
from collections.abc import Iterator
from itertools import count

from benchmarks.measure import AsyncOperation, Row, interleaved_async, middle, us
from benchmarks.place import Place
from persist import AsyncStore, Store

_ROUNDS = 350


def rows(place: Place) -> Iterator[Row]:
    """In one verb, and in three."""
    times = asyncio.run(_times(place.file("faces")))
    for verbs in ("one verb", "three verbs"):
        ours, sync = times[f"{verbs}, async"], times[verbs]
        what = f"write transaction of three statements in {verbs}, AsyncStore vs Store"
        yield Row(what, ours / sync, 4.0, f"{us(ours)} vs {us(sync)}")


async def _times(url: str) -> dict[str, float]:
    numbers = count()
    store = Store.open(url)
    with store.begin() as made:
        session = made.chat.sessions.create(agent="bench", model={})
    other = await AsyncStore.open(url)

    async def one() -> None:
        with store.begin() as tx:
            tx.chat.sessions.update_metadata(session.id, {"number": next(numbers)})

    async def three() -> None:
        with store.begin() as tx:
            tx.chat.sessions.get(session.id)
            tx.chat.sessions.get(session.id)
            tx.chat.prompts.put(f"prompt {next(numbers)}")

    async def one_async() -> None:
        async with other.begin() as tx:
            await tx.chat.sessions.update_metadata(session.id, {"number": next(numbers)})

    async def three_async() -> None:
        async with other.begin() as tx:
            await tx.chat.sessions.get(session.id)
            await tx.chat.sessions.get(session.id)
            await tx.chat.prompts.put(f"prompt {next(numbers)}")

    alternatives: dict[str, AsyncOperation] = {
        "one verb": one,
        "three verbs": three,
        "one verb, async": one_async,
        "three verbs, async": three_async,
    }
    taken = await interleaved_async(alternatives, rounds=_ROUNDS, warm=50)
    await other.close()
    store.close()
    return {name: middle(seconds) for name, seconds in taken.items()}
