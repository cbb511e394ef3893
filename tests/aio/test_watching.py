"""Watching on the async face: tasks that are cancelled, loops that are left, and the threads behind them."""

import asyncio
import threading
import time
from contextlib import aclosing
from typing import Any

import pytest

from persist import AsyncStore
from persist.errors import Closed
from persist.events.schemas import Event

MANY = 450  # more than are read at once


@pytest.fixture
def store(database_url: str) -> Any:
    """As elsewhere, with the log on."""
    return AsyncStore.open(database_url, events=True)


async def append(store: AsyncStore, stream: str, *values: Any) -> None:
    async with store.begin() as tx:
        for value in values:
            await tx.events.append(stream, "said", value)


def watching_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("persist-watch")]


async def no_thread_is_left() -> None:
    deadline = time.monotonic() + 30
    while watching_threads():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def all_of(store: AsyncStore, stream: str, **options: Any) -> list[Any]:
    return [event.data async for event in store.watch(stream, **options)]


async def test_from_a_cursor_until_a_timeout(store: AsyncStore) -> None:
    await append(store, "a", *range(MANY))
    await append(store, "b", "b")
    assert await all_of(store, "a", timeout=0) == list(range(MANY))
    assert await all_of(store, "a", after=MANY - 2, timeout=0.2) == [MANY - 2, MANY - 1]
    assert await all_of(store, "*", after=MANY - 1, timeout=0) == [MANY - 1, "b"]
    await no_thread_is_left()


async def test_many_tasks_follow_and_the_loop_goes_on_meanwhile(store: AsyncStore) -> None:
    async def follow(stream: str) -> list[int]:
        seen: list[int] = []
        async for event in store.watch(stream):
            seen.append(event.seq)
            if len(seen) == 20:
                return seen
        raise AssertionError("the watch ended")

    tasks = [asyncio.create_task(follow(stream)) for stream in ("a", "*", "a", "*")]
    for number in range(20):
        await append(store, "a", number)
    assert await asyncio.wait_for(asyncio.gather(*tasks), 30) == [list(range(1, 21))] * 4
    await no_thread_is_left()


async def test_a_task_that_is_cancelled_leaves_no_thread(store: AsyncStore) -> None:
    seen: asyncio.Queue[Event] = asyncio.Queue()

    async def follow() -> None:
        async for event in store.watch("a"):
            seen.put_nowait(event)

    for number in range(3):
        task = asyncio.create_task(follow())
        await append(store, "a", number)
        for expected in range(number + 1):
            assert (await asyncio.wait_for(seen.get(), 30)).data == expected
        assert len(watching_threads()) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await no_thread_is_left()


async def test_cancelled_before_it_has_begun(store: AsyncStore) -> None:
    task = asyncio.create_task(all_of(store, "a"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    store.watch("a")  # and one that nobody asks for anything
    await no_thread_is_left()


async def test_leaving_the_loop_ends_it(store: AsyncStore) -> None:
    await append(store, "a", 1, 2)
    async for event in store.watch("a"):
        assert event.data == 1
        break
    async with aclosing(store.watch("a")) as watching:  # type: ignore[type-var]  # an iterator by type, a generator in truth
        assert (await anext(watching)).data == 1
    await no_thread_is_left()


async def test_a_store_that_closes_ends_its_watches(database_url: str) -> None:
    store = await AsyncStore.open(database_url, events=True)
    tasks = [asyncio.create_task(all_of(store, stream)) for stream in ("a", "*")]
    while len(watching_threads()) < 2:
        await asyncio.sleep(0.005)
    await store.close()
    assert await asyncio.wait_for(asyncio.gather(*tasks), 30) == [[], []]
    with pytest.raises(Closed):
        store.watch("a")
    await no_thread_is_left()


def test_a_loop_that_ends_takes_its_watches_along(database_url: str) -> None:
    async def main() -> None:
        store = await AsyncStore.open(database_url, events=True)
        main.store = store  # type: ignore[attr-defined]  # it outlives its loop
        await append(store, "a", 1)
        watching = store.watch("a")
        main.watching = watching  # type: ignore[attr-defined]  # kept, so that nobody but the loop closes it
        assert (await anext(watching)).data == 1

    asyncio.run(main())
    asyncio.run(no_thread_is_left())
    asyncio.run(main.store.close())  # type: ignore[attr-defined]  # see above


async def test_a_reader_that_takes_its_time_gets_everything(store: AsyncStore) -> None:
    await append(store, "a", *range(MANY))
    seen = []
    async for event in store.watch("a", timeout=0.5):
        if event.data % 150 == 0:
            await append(store, "a", MANY + event.data // 150)
        seen.append(event.data)
    assert seen == [*range(MANY), *range(MANY, MANY + len(seen) - MANY)]
    assert len(seen) == MANY + 4  # the fourth answers one of the first three
