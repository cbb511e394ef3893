"""Async recorders: shared commits, failures that stay with their own waiter, cancelled feeds."""

import asyncio
import random
from typing import Any

import pytest

from persist import AsyncStore, Conflict, Store
from tests.aio.conftest import WithStore, new_session, text_of

START = ({"type": "start"}, {"type": "text-start", "id": "t"})


def delta(text: str) -> dict[str, Any]:
    return {"type": "text-delta", "id": "t", "delta": text}


def test_many_streams_at_once_are_each_complete(with_store: WithStore[object]) -> None:
    async def body(store: AsyncStore) -> None:
        sessions = [await new_session(store) for _ in range(12)]

        async def stream(session_id: str) -> None:
            async with store.record(session_id) as recorder:
                for chunk in START:
                    await recorder.feed(chunk)
                for number in range(100):
                    await recorder.feed(delta(f"{number},"))

        await asyncio.gather(*(stream(session_id) for session_id in sessions))
        expected = "".join(f"{number}," for number in range(100))
        assert [await text_of(store, session_id) for session_id in sessions] == [expected] * 12

    with_store(body)


def test_a_failing_member_of_a_group_fails_alone(with_store: WithStore[object], database_url: str) -> None:
    """The recorder that lost its turn is told so; the chunks that shared its commit are durable."""

    async def body(store: AsyncStore) -> None:
        sessions = [await new_session(store) for _ in range(6)]
        recorders = [store.record(session_id) for session_id in sessions]
        for recorder in recorders:
            for chunk in START:
                await recorder.feed(chunk)

        def take_over() -> None:
            with Store.open(database_url) as other, other.record(sessions[2], takeover=True) as thief:
                thief.feed({"type": "start"})

        await asyncio.to_thread(take_over)
        results = await asyncio.gather(*(recorder.feed(delta("x")) for recorder in recorders), return_exceptions=True)
        assert [type(result) for result in results] == [Conflict if number == 2 else type(None) for number in range(6)]
        for number, session_id in enumerate(sessions):
            assert await text_of(store, session_id) == ("" if number == 2 else "x")
        for recorder in recorders:
            await recorder.close()

    with_store(body)


def test_a_cancelled_feed_is_durable_or_never_started(with_store: WithStore[object]) -> None:
    """Whatever happens to the tasks, what is stored is what was acknowledged, and the cancelled ones whole or not at all."""

    async def body(store: AsyncStore) -> None:
        session_id = await new_session(store)
        dice = random.Random(11)
        outcomes: list[tuple[str, bool]] = []
        async with store.record(session_id) as recorder:
            for chunk in START:
                await recorder.feed(chunk)
            for number in range(80):
                text = f"<{number}>"
                task = asyncio.create_task(recorder.feed(delta(text)))
                for _ in range(dice.randrange(4)):
                    await asyncio.sleep(0)
                if dice.random() < 0.5:
                    task.cancel()
                (result,) = await asyncio.gather(task, return_exceptions=True)
                outcomes.append((text, result is None))
        stored = await text_of(store, session_id)
        position = 0
        for text, acknowledged in outcomes:
            if stored.startswith(text, position):
                position += len(text)
            else:
                assert not acknowledged
        assert position == len(stored)

    with_store(body)


def test_a_stalled_stream_is_folded_by_the_timer(with_store: WithStore[object], database_url: str) -> None:
    async def body(store: AsyncStore) -> None:
        session_id = await new_session(store)
        async with store.record(session_id, buffer_ms=20) as recorder:
            for chunk in START:
                await recorder.feed(chunk)
            await recorder.feed(delta("waits"))
            for _ in range(500):
                if await text_of(store, session_id) == "waits":
                    break
                await asyncio.sleep(0.02)
            else:
                pytest.fail("the buffered text was never written")

    with_store(body)


def test_closing_the_store_flushes_its_recorders(database_url: str) -> None:
    async def body() -> None:
        async with AsyncStore.open(database_url) as store:
            session_id = await new_session(store)
            recorder = store.record(session_id, buffer_bytes=10_000)
            for chunk in (*START, delta("kept")):
                await recorder.feed(chunk)
        async with AsyncStore.open(database_url) as store:
            assert await text_of(store, session_id) == "kept"

    asyncio.run(body())
