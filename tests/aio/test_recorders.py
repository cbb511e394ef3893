"""Async recorders: shared commits, failures that stay with their own waiter, cancelled feeds."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from persist import AsyncStore, Closed, Conflict, Store
from persist.chat.recording.async_recorder import AsyncRecorder
from persist.db.group_commit.pinned_connection import PinnedConnection
from tests.aio.conftest import new_session, text_of
from tests.aio.loops import ENOUGH, Threads, abandoned

START = ({"type": "start"}, {"type": "text-start", "id": "t"})


def delta(text: str) -> dict[str, Any]:
    return {"type": "text-delta", "id": "t", "delta": text}


async def test_a_failing_member_of_a_group_fails_alone(store: AsyncStore, database_url: str) -> None:
    """The recorder that lost its turn is told so; the chunks that shared its commit are durable."""
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


async def test_a_cancelled_feed_is_durable_or_never_started(store: AsyncStore) -> None:
    """Whatever happens to the tasks, what is stored is what was acknowledged, and the cancelled ones whole or not at all."""
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


# A recorder whose loop is closed in the middle of a write: it is closed, and its session is free for the next one.


BEGINNING = ({"type": "start"}, {"type": "text-start", "id": "t"})


class _UndoError(Exception):
    pass


@contextmanager
def nobody_writes(store: AsyncStore, session_id: str) -> Iterator[Callable[[], None]]:
    """Whoever wants to write to the session in here waits, until the function is called."""
    threads, locked, over = Threads(), threading.Event(), threading.Event()

    async def lock() -> None:
        with suppress(_UndoError):
            async with store.begin() as tx:
                await tx.chat.sessions.delete(session_id)
                locked.set()
                await asyncio.to_thread(over.wait, ENOUGH)
                raise _UndoError

    def go_on() -> None:
        over.set()
        threads.join()

    threads.start(lock)
    locked.wait(ENOUGH)
    try:
        yield go_on
    finally:
        go_on()


Step = Callable[[AsyncRecorder], Coroutine[Any, Any, None]]


async def feed_one(recorder: AsyncRecorder) -> None:
    await recorder.feed(delta("lost?"))


async def feed_many(recorder: AsyncRecorder) -> None:
    await recorder.feed_many([delta("lo"), delta("st?")])


async def finish(recorder: AsyncRecorder) -> None:
    await recorder.feed_many([delta("lost?"), {"type": "text-end", "id": "t"}, {"type": "finish"}])


async def begin(store: AsyncStore, session_id: str) -> AsyncRecorder:
    recorder = store.record(session_id)
    await recorder.feed_many([*BEGINNING, delta("kept ")])
    return recorder


async def record_on(store: AsyncStore, session_id: str) -> None:
    """As soon as the session is free, and without a takeover."""
    while True:
        try:
            async with store.record(session_id) as recorder:
                await recorder.feed_many([*BEGINNING, delta("after"), {"type": "text-end", "id": "t"}, {"type": "finish"}])
            return
        except Conflict:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("forget", [True, False], ids=["forgotten", "kept"])
@pytest.mark.parametrize("step", [feed_one, feed_many, finish, AsyncRecorder.close])
def test_a_recorder_in_the_middle_of_a_write_is_closed(shared: AsyncStore, step: Step, forget: bool) -> None:
    session_id = asyncio.run(new_session(shared))
    recorder = asyncio.run(begin(shared, session_id))

    async def look() -> None:
        with pytest.raises(Closed) as refused:
            await recorder.feed(delta("never"))
        assert refused.value.what == "recorder"
        await recorder.close()
        await record_on(shared, session_id)
        assert await text_of(shared, session_id) in ("kept after", "kept lost?after")

    with nobody_writes(shared, session_id) as go_on, abandoned(step(recorder)) as close:
        close(forget)
        go_on()
        asyncio.run(asyncio.wait_for(look(), ENOUGH))


@pytest.mark.parametrize("forget", [True, False], ids=["forgotten", "kept"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_a_session_whose_recorder_nobody_asks_for_any_more_is_free(shared: AsyncStore, first: bool, forget: bool) -> None:
    session_id = asyncio.run(new_session(shared))
    recorder = shared.record(session_id) if first else asyncio.run(begin(shared, session_id))
    chunks = [*BEGINNING, delta("lost?")] if first else [delta("lost?")]
    with nobody_writes(shared, session_id) as go_on, abandoned(recorder.feed_many(chunks)) as close:
        close(forget)
        go_on()
        asyncio.run(asyncio.wait_for(record_on(shared, session_id), ENOUGH))
        before = "" if first else "kept "
        assert asyncio.run(text_of(shared, session_id)) in (f"{before}after", f"{before}lost?after")


def test_a_store_whose_recorder_is_in_the_middle_of_a_write_can_be_closed(shared: AsyncStore) -> None:
    session_id = asyncio.run(new_session(shared))
    recorder = asyncio.run(begin(shared, session_id))
    with nobody_writes(shared, session_id) as go_on, abandoned(recorder.feed(delta("lost?"))) as close:
        close(False)
        go_on()
        asyncio.run(asyncio.wait_for(shared.close(), ENOUGH))


# Timed flushes of async recorders. They belong to no event loop, so the end of a loop neither interrupts nor prevents one.


class Gate:
    """Holds the store's writer thread in front of its next write."""

    def __init__(self) -> None:
        self._closed = False
        self._reached, self._open = threading.Event(), threading.Event()

    def close(self) -> None:
        self._closed = True

    def open(self) -> None:
        self._closed = False
        self._open.set()

    def wait_until_reached(self) -> None:
        assert self._reached.wait(ENOUGH), "nothing was written"

    def pass_through(self) -> None:
        if self._closed:
            self._reached.set()
            self._open.wait(ENOUGH)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate, run_group = Gate(), PinnedConnection.run_group

    def held(self: PinnedConnection, *args: Any, **options: Any) -> Any:
        gate.pass_through()
        return run_group(self, *args, **options)

    monkeypatch.setattr(PinnedConnection, "run_group", held)
    yield gate
    gate.open()


async def begun(store: AsyncStore, session_id: str) -> AsyncRecorder:
    recorder = store.record(session_id, buffer_ms=100)
    await recorder.feed_many(BEGINNING)
    await recorder.flush()
    return recorder


def feed_on_a_loop_that_is_closed(recorder: AsyncRecorder, gate: Gate) -> None:
    """Without a word to its tasks."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # a task that is destroyed while it is pending would be reported
    loop.run_until_complete(recorder.feed(delta("first ")))
    loop.run_until_complete(asyncio.to_thread(gate.wait_until_reached))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def feed_on_a_loop_that_ends(recorder: AsyncRecorder, gate: Gate) -> None:
    """asyncio.run cancels the tasks of a loop, and then the loop runs on until its asynchronous generators are closed."""

    async def last() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.to_thread(gate.wait_until_reached)

    generator = last()

    async def main() -> None:
        await anext(generator)
        await recorder.feed(delta("first "))

    asyncio.run(main())


@pytest.mark.parametrize("feed", [feed_on_a_loop_that_is_closed, feed_on_a_loop_that_ends], ids=["closed", "ended"])
def test_a_recorder_whose_loop_ends_in_the_middle_of_a_timed_flush_goes_on(
    shared: AsyncStore, gate: Gate, feed: Callable[[AsyncRecorder, Gate], None]
) -> None:
    session_id = asyncio.run(new_session(shared))
    recorder = asyncio.run(begun(shared, session_id))
    gate.close()
    feed(recorder, gate)
    gate.open()

    async def go_on() -> None:
        await recorder.feed(delta("second"))
        await recorder.close()
        assert await text_of(shared, session_id) == "first second"

    asyncio.run(asyncio.wait_for(go_on(), ENOUGH))


def test_what_was_fed_on_a_loop_that_has_ended_is_flushed(shared: AsyncStore, gate: Gate) -> None:
    session_id = asyncio.run(new_session(shared))
    recorder = asyncio.run(begun(shared, session_id))
    gate.close()
    asyncio.run(recorder.feed(delta("text")))
    gate.wait_until_reached()
    gate.open()

    async def look() -> None:
        while await text_of(shared, session_id) != "text":
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(look(), ENOUGH))
    asyncio.run(recorder.close())


def test_a_timed_flush_waits_for_its_turn_in_line(shared: AsyncStore, gate: Gate) -> None:
    """Tasks that feed without a pause do not keep it from the recorder."""
    session_id = asyncio.run(new_session(shared))
    recorder = asyncio.run(begun(shared, session_id))

    async def main() -> None:
        async def feed() -> None:
            while await text_of(shared, session_id) == "":
                await asyncio.gather(*(recorder.feed(delta("x")) for _ in range(20)))

        await asyncio.gather(*(feed() for _ in range(4)))
        await recorder.close()

    asyncio.run(asyncio.wait_for(main(), ENOUGH))
