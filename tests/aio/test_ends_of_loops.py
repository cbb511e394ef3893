"""What several event loops share of one AsyncStore until it is closed: its end, its observers and its log."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from persist import AsyncStore, Closed, Store, StoreInUse
from tests.aio.conftest import new_session
from tests.aio.loops import ENOUGH, Threads, append, in_loops, opened

MEMORY = "sqlite:///:memory:"
BEGINNING = ({"type": "start"}, {"type": "text-start", "id": "t"})


def delta(text: str) -> dict[str, Any]:
    return {"type": "text-delta", "id": "t", "delta": text}


def test_a_store_that_closes_refuses_those_who_wait_on_other_loops(database_url: str) -> None:
    store = asyncio.run(opened(database_url))
    session_id = asyncio.run(new_session(store))
    ended: list[str] = []
    ready, closing = threading.Barrier(5), threading.Event()

    async def work(number: int) -> None:
        recorder = store.record(session_id) if number == 0 else None
        await asyncio.to_thread(ready.wait, ENOUGH)
        try:
            for chunk in BEGINNING if recorder is not None else ():
                await recorder.feed(chunk)  # type: ignore[union-attr]  # as above
            while True:
                if recorder is not None:
                    await recorder.feed(delta("x"))
                else:
                    await append(store, session_id, "x")
                await asyncio.sleep(0.02 * closing.is_set())  # or one of them is always inside
        except Closed:
            ended.append("closed")

    async def close() -> None:
        await asyncio.to_thread(ready.wait, ENOUGH)
        while True:
            try:
                return await store.close()
            except StoreInUse:
                closing.set()
                await asyncio.sleep(0)

    in_loops(5, lambda number: close() if number == 4 else work(number))
    assert ended == ["closed"] * 4
    assert not [thread for thread in threading.enumerate() if thread.name == "persist-writer"]


def test_an_observer_is_told_on_its_own_loop_while_that_is_open(shared: AsyncStore) -> None:
    told: list[tuple[str, object]] = []

    async def finish() -> str:
        async with shared.begin() as tx:
            run = await tx.workflows.runs.create("build", trigger_id="t", current_phase="plan")
            await tx.workflows.runs.cancel(run.id)
        return run.id

    async def main() -> None:
        heard = asyncio.Event()
        own = asyncio.get_running_loop()

        async def hear(run: Any) -> None:
            told.append((run.id, asyncio.get_running_loop()))
            heard.set()

        shared.on_run_finished(hear)
        id = await asyncio.to_thread(lambda: asyncio.run(finish()))
        await asyncio.wait_for(heard.wait(), ENOUGH)
        assert told == [(id, own)]

    asyncio.run(main())
    later = asyncio.run(finish())  # its loop is closed
    assert [id for id, _ in told[1:]] == [later]


def test_every_loop_follows_the_log(database_url: str) -> None:
    store = asyncio.run(opened(database_url, events=True))
    following = threading.Barrier(4)

    async def emit(number: int) -> None:
        async with store.begin() as tx:
            await tx.events.append("a", "said", number)

    async def follow() -> list[Any]:
        seen = []
        stream: AsyncIterator[Any] = store.watch("a")
        async for event in stream:
            seen.append(event.data)
            if len(seen) == 30:
                break
        return seen

    seen: list[list[Any]] = []

    async def main(number: int) -> None:
        await asyncio.to_thread(following.wait, ENOUGH)
        if number < 3:
            seen.append(await asyncio.wait_for(follow(), ENOUGH))
        else:
            for one in range(30):
                await emit(one)

    in_loops(4, main)
    assert seen == [list(range(30))] * 3
    asyncio.run(store.close())


# Who comes while a store closes: refused, or it stays open. Nobody is let in whose transaction nobody could end.


CHUNKS: tuple[dict[str, Any], ...] = (
    {"type": "start"},
    {"type": "text-start", "id": "t"},
    {"type": "text-delta", "id": "t", "delta": "kept"},
)


@pytest.mark.parametrize("writable", [True, False], ids=["begin", "read"])
def test_a_transaction_that_begins_while_the_store_closes_is_refused(database_url: str, writable: bool) -> None:
    store = Store.open(database_url, events=True)
    with store.begin() as tx:
        session_id = tx.chat.sessions.create(agent="build", model={"model_id": "m"}).id
    both = AsyncStore(store)
    recorder = store.record(session_id, buffer_bytes=10_000)
    recorder.feed_many(CHUNKS)
    outcomes: list[str] = []
    threads, tried, closed = Threads(), threading.Event(), threading.Event()

    async def come() -> None:
        try:
            async with both.begin() if writable else both.read() as tx:
                outcomes.append("let in")
                tried.set()
                await asyncio.to_thread(closed.wait, ENOUGH)
                await tx.chat.sessions.get(session_id)
        except Closed:
            outcomes.append("refused")
        finally:
            tried.set()

    def while_it_closes(events: object) -> None:
        if not tried.is_set():
            threads.start(come)
        if not writable:  # on SQLite a writer waits for the recorder, whose commit this is
            tried.wait(ENOUGH)

    store.on_commit(while_it_closes)  # of what the recorder's end writes
    asyncio.run(both.close())
    closed.set()
    threads.join()
    assert outcomes == ["refused"]
    gc.collect()  # what was left open would be a ResourceWarning of the driver's
