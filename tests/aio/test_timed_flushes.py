"""Timed flushes of async recorders. They belong to no event loop, so the end of a loop neither interrupts nor prevents one."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from persist import AsyncStore
from persist.chat.recording.async_recorder import AsyncRecorder
from persist.db.group_commit.pinned_connection import PinnedConnection
from tests.aio.conftest import new_session, text_of
from tests.aio.loops import ENOUGH

BEGINNING = ({"type": "start"}, {"type": "text-start", "id": "t"})


def delta(text: str) -> dict[str, Any]:
    return {"type": "text-delta", "id": "t", "delta": text}


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
