"""Who comes while a store closes: refused, or it stays open. Nobody is let in whose transaction nobody could end."""

import asyncio
import gc
import threading
from typing import Any

import pytest

from persist import AsyncStore, Closed, Store
from tests.aio.loops import ENOUGH, Threads

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
