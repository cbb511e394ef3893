"""One AsyncStore on several event loops: at the same time, one after the other, and with loops that end in the middle."""

import asyncio
import gc
import random
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from persist import AsyncStore, Closed, Settings, Store, StoreInUse, WrongOwner
from tests.aio.conftest import new_session, text_of
from tests.aio.loops import ENOUGH, Threads, abandoned, append, in_loops, opened, texts

MEMORY = "sqlite:///:memory:"
BEGINNING = ({"type": "start"}, {"type": "text-start", "id": "t"})


def delta(text: str) -> dict[str, Any]:
    return {"type": "text-delta", "id": "t", "delta": text}


@pytest.mark.parametrize("database", ["sqlite", "memory", "postgres"])
def test_ten_threads_with_a_loop_each_write_and_read(database: str, request: pytest.FixtureRequest) -> None:
    store = asyncio.run(opened(MEMORY if database == "memory" else request.getfixturevalue(f"{database}_url")))
    session_id = asyncio.run(new_session(store))

    async def work(number: int) -> None:
        own = await new_session(store)
        for turn in range(4):
            await append(store, own, f"{turn}")
            await append(store, session_id, f"{number} {turn}")
            assert await texts(store, own) == [str(before) for before in range(turn + 1)]
        await asyncio.gather(*(append(store, session_id, f"{number} more {one}") for one in range(4)))
        await asyncio.gather(*(texts(store, own) for _ in range(8)))

    in_loops(10, work)
    assert len(set(asyncio.run(texts(store, session_id)))) == 80
    asyncio.run(store.close())


def test_two_loops_in_turn(database_url: str) -> None:
    store = asyncio.run(opened(database_url, events=True))
    session_id = asyncio.run(new_session(store))
    recorder = store.record(session_id)

    async def turn(number: int) -> None:
        await asyncio.gather(*(append(store, session_id, f"{number} {task}") for task in range(3)))
        for chunk in BEGINNING if not number else ():
            await recorder.feed(chunk)
        await asyncio.gather(*(recorder.feed(delta(str(number))) for _ in range(3)))
        assert [event.seq async for event in store.watch("chat", timeout=0)] == []

    for number in range(3):
        asyncio.run(asyncio.wait_for(turn(number), ENOUGH))
    asyncio.run(asyncio.wait_for(store.close(), ENOUGH))

    async def look() -> None:
        async with AsyncStore.open(database_url) as other:
            expected = ["000111222", *(f"{number} {task}" for number in range(3) for task in range(3))]
            assert sorted(await texts(other, session_id)) == sorted(expected)

    asyncio.run(look())


def test_a_follower_goes_on_in_a_second_loop(database_url: str) -> None:
    store = asyncio.run(opened(database_url, settings=Settings(notify_followers=True)))
    session_id = asyncio.run(new_session(store))
    recorder, follower = store.record(session_id), store.follow(session_id)

    async def begin() -> None:
        for chunk in BEGINNING:
            await recorder.feed(chunk)
        assert [(await anext(follower))["type"] for _ in BEGINNING] == ["start", "text-start"]

    async def go_on() -> None:
        waiting = asyncio.create_task(anext(follower))
        await asyncio.sleep(0)
        await recorder.feed(delta("more"))
        assert (await waiting)["delta"] == "more"

    for main in (begin, go_on, go_on):
        asyncio.run(asyncio.wait_for(main(), ENOUGH))
    asyncio.run(asyncio.wait_for(store.close(), ENOUGH))


def test_cancelled_at_any_moment_in_any_loop_nothing_is_half_there_and_nobody_waits_for_ever(shared: AsyncStore) -> None:
    session_id = asyncio.run(new_session(shared))
    finished: list[str] = []

    async def write(name: str) -> None:
        await append(shared, session_id, f"{name} a", f"{name} b")
        finished.append(name)

    async def read() -> None:
        assert len(await texts(shared, session_id)) % 2 == 0

    async def main(number: int) -> None:
        dice = random.Random(number)
        tasks = []
        for turn in range(25):
            tasks.append(asyncio.create_task(write(f"{number}/{turn}") if dice.random() < 0.6 else read()))
            for _ in range(dice.randrange(6)):
                await asyncio.sleep(0)
            if dice.random() < 0.6:
                dice.choice(tasks).cancel()
        await asyncio.sleep(dice.random() * 0.02)
        for task in tasks:
            if dice.random() < 0.5:
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [error for error in results if isinstance(error, Exception)] == []

    in_loops(5, main)
    found = asyncio.run(texts(shared, session_id))
    assert {f"{name} {half}" for name in finished for half in "ab"} <= set(found)
    assert len(found) == len(set(found)) == 2 * len({text.split()[0] for text in found})
    in_loops(5, lambda number: asyncio.wait_for(write(f"after {number}"), ENOUGH))


async def hold(store: AsyncStore, session_id: str) -> None:
    async with store.begin() as tx:
        await tx.chat.messages.append(session_id, role="user", parts=[{"type": "text", "text": "never"}])
        await asyncio.sleep(ENOUGH)


def test_a_loop_that_returns_with_tasks_in_every_state_keeps_nobody_waiting(shared: AsyncStore) -> None:
    session_id = asyncio.run(new_session(shared))

    async def leave(number: int) -> None:
        tasks = [
            asyncio.create_task(hold(shared, session_id) if task == 3 else append(shared, session_id, "x")) for task in range(6)
        ]
        for _ in range(number * 5):
            await asyncio.sleep(0)
        assert len(tasks) == 6  # and returns: asyncio.run cancels them

    async def stay(number: int) -> None:
        for turn in range(5):
            await append(shared, session_id, f"{number} {turn}")

    in_loops(8, lambda number: leave(number) if number % 2 else stay(number))
    found = asyncio.run(texts(shared, session_id))
    assert "never" not in found
    assert len(set(found) - {"x"}) == 20


@pytest.mark.parametrize("forget", [True, False], ids=["forgotten", "kept"])
def test_a_loop_that_is_closed_in_the_middle_of_everything_keeps_nobody_waiting(shared: AsyncStore, forget: bool) -> None:
    session_id = asyncio.run(new_session(shared))
    threads = Threads()
    with abandoned(hold(shared, session_id), *(append(shared, session_id, "never") for _ in range(30))) as close:
        for number in range(3):
            threads.start(lambda number=number: append(shared, session_id, str(number)))  # type: ignore[misc]  # a bound default
        close(forget)
        threads.join()
    assert sorted(text for text in asyncio.run(texts(shared, session_id)) if text != "never") == ["0", "1", "2"]

    async def close_in_the_end() -> None:
        while True:
            try:
                return await shared.close()
            except StoreInUse:  # a statement of the closed loop is not over yet
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(close_in_the_end(), ENOUGH))


def test_a_transaction_of_a_closed_loop_does_not_keep_the_store_open(database_url: str) -> None:
    store = asyncio.run(opened(database_url))

    async def hold() -> None:
        async with store.begin() as tx:
            await tx.chat.prompts.put("never")
            await asyncio.sleep(ENOUGH)

    with abandoned(hold()) as close:
        with pytest.raises(StoreInUse):
            asyncio.run(store.close())
        close(False)
        asyncio.run(asyncio.wait_for(store.close(), ENOUGH))


def test_one_recorder_is_fed_by_several_loops(shared: AsyncStore) -> None:
    session_id = asyncio.run(new_session(shared))
    recorder = shared.record(session_id, buffer_ms=1)

    async def begin() -> None:
        for chunk in BEGINNING:
            await recorder.feed(chunk)

    async def feed(number: int) -> None:
        for one in range(30):
            await asyncio.gather(*(recorder.feed(delta(f"{number}-{one} ")) for _ in range(2)))

    asyncio.run(begin())
    in_loops(4, feed)
    asyncio.run(recorder.close())
    found = asyncio.run(text_of(shared, session_id)).split()
    assert sorted(found) == sorted(f"{number}-{one}" for number in range(4) for one in range(30) for _ in range(2))
    for number in range(4):
        own = [int(text.partition("-")[2]) for text in found if text.startswith(f"{number}-")]
        assert own == sorted(own)


def test_a_transaction_belongs_to_its_loop(shared: AsyncStore) -> None:
    async def main() -> None:
        session_id = await new_session(shared)
        async with shared.begin() as tx:

            async def elsewhere() -> None:
                with pytest.raises(WrongOwner):
                    await tx.chat.sessions.get(session_id)

            # a thread that asyncio starts has the context of its task, and would pass for it
            await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
            await tx.chat.sessions.get(session_id)

    asyncio.run(asyncio.wait_for(main(), ENOUGH))


def test_a_transaction_that_another_loop_ends_is_refused_and_rolled_back(shared: AsyncStore) -> None:
    session_id = asyncio.run(new_session(shared))
    block, own = shared.begin(), asyncio.new_event_loop()

    async def enter() -> None:
        tx = await block.__aenter__()
        await tx.chat.messages.append(session_id, role="user", parts=[{"type": "text", "text": "never"}])

    async def leave() -> None:
        with pytest.raises(WrongOwner):
            await block.__aexit__(None, None, None)
        await append(shared, session_id, "after")
        assert await texts(shared, session_id) == ["after"]

    own.run_until_complete(enter())
    asyncio.run(asyncio.wait_for(leave(), ENOUGH))
    own.close()


# What several event loops share of one AsyncStore until it is closed: its end, its observers and its log.


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
    session_id = store.chat.sessions.create(agent="build", model={"model_id": "m"}).id
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
