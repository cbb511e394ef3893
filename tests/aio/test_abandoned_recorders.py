"""A recorder whose loop is closed in the middle of a write: it is closed, and its session is free for the next one."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from persist import AsyncStore, Closed, Conflict
from persist.chat.recording.async_recorder import AsyncRecorder
from tests.aio.conftest import new_session, text_of
from tests.aio.loops import ENOUGH, Threads, abandoned

BEGINNING = ({"type": "start"}, {"type": "text-start", "id": "t"})


def delta(text: str) -> dict[str, Any]:
    return {"type": "text-delta", "id": "t", "delta": text}


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


def test_a_session_whose_recorder_grew_is_free_after_its_deadline(shared: AsyncStore) -> None:
    session_id = asyncio.run(new_session(shared))
    recorder = asyncio.run(begin(shared, session_id))
    with nobody_writes(shared, session_id) as go_on, abandoned(recorder.feed(delta("lost?"))) as close:
        close(False)
        go_on()
        asyncio.run(asyncio.wait_for(record_on(shared, session_id), ENOUGH))


def test_a_store_whose_recorder_is_in_the_middle_of_a_write_can_be_closed(shared: AsyncStore) -> None:
    session_id = asyncio.run(new_session(shared))
    recorder = asyncio.run(begin(shared, session_id))
    with nobody_writes(shared, session_id) as go_on, abandoned(recorder.feed(delta("lost?"))) as close:
        close(False)
        go_on()
        asyncio.run(asyncio.wait_for(shared.close(), ENOUGH))
