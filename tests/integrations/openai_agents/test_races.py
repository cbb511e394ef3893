"""Many workers on one session, cancelled calls, and rows that another program spoilt."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.integrations.openai_agents import PersistSession
from tests.aio.loops import in_loops
from tests.integrations.openai_agents.conftest import Session

Do = Callable[[Awaitable[Any]], Any]

ROOT = Path(__file__).parents[3]
WORKERS = 20


def pair(worker: int, turn: int) -> list[Any]:
    return [{"worker": worker, "turn": turn, "half": half} for half in (0, 1)]


def assert_whole(items: list[Any], turns: int) -> None:
    """Every pair is there once, together, and in the order in which its worker wrote."""
    assert len(items) == WORKERS * turns * 2
    halves = list(zip(items[::2], items[1::2], strict=True))
    assert all(list(both) == pair(both[0]["worker"], both[0]["turn"]) for both in halves)
    for worker in range(WORKERS):
        assert [item["turn"] for item, _ in halves if item["worker"] == worker] == list(range(turns))


def test_one_store_on_many_loops_serves_one_session(session: Session, do: Do) -> None:
    async def work(worker: int) -> None:
        for turn in range(2):
            await session().add_items(pair(worker, turn))
            assert len(await session().get_items()) >= 2

    in_loops(WORKERS, work)
    assert_whole(do(session().get_items()), 2)


def test_many_stores_on_many_loops_use_one_session_from_its_first_moment(database_url: str, face: str, look: Store) -> None:
    async def work(worker: int) -> None:
        opened = Store.open(database_url) if face == "sync" else await AsyncStore.open(database_url)
        try:
            for turn in range(2):
                await PersistSession("user-1", opened).add_items(pair(worker, turn))
        finally:
            if isinstance(opened, Store):
                opened.close()
            else:
                await opened.close()

    with ThreadPoolExecutor(WORKERS) as threads:
        list(threads.map(lambda worker: asyncio.run(work(worker)), range(WORKERS)))
    assert_whole(asyncio.run(PersistSession("user-1", look).get_items()), 2)


@pytest.mark.long
def test_processes_share_a_session(database_url: str, look: Store) -> None:
    line = [sys.executable, "-m", "tests.integrations.openai_agents.worker", "append", database_url]
    started = [subprocess.Popen([*line, str(first)], cwd=ROOT) for first in range(0, WORKERS, 5)]
    assert [process.wait(120) for process in started] == [0] * 4
    assert_whole(asyncio.run(PersistSession("user-1", look).get_items()), 2)


async def test_a_cancelled_call_happens_wholly_or_not_at_all(session: Session) -> None:
    ended = 0
    for number in range(40):
        call = asyncio.ensure_future(session().add_items([{"n": number, "half": half} for half in (0, 1)]))
        for _ in range(number % 8):
            await asyncio.sleep(0)
        await asyncio.sleep(0.0002 * (number % 5))
        call.cancel()
        call.cancel()
        try:
            await call
        except asyncio.CancelledError:
            ended += 1
        before = await session().get_items()
        await asyncio.sleep(0)
        assert await session().get_items() == before  # nothing happens behind the caller's back
    ended, items = ended, before
    assert ended > 0
    assert [item["half"] for item in items] == [0, 1] * (len(items) // 2)
    assert [item["n"] for item in items[::2]] == [item["n"] for item in items[1::2]]


def test_a_cancelled_pop_loses_no_more_than_its_item(session: Session, do: Do) -> None:
    async def cancelled() -> Any:
        await session().add_items([{"n": n} for n in range(5)])
        call = asyncio.ensure_future(session().pop_item())
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        return await session().get_items()

    left = [item["n"] for item in do(cancelled())]
    assert left in ([0, 1, 2, 3], [0, 1, 2, 3, 4])


SPOILT = {
    "cut off": '{"role":',
    "no JSON": "x",
    "no object": "[1]",
    "empty": "",
    "a number": 5,
    "null": None,
    "an object": {"a": 1},
    "an empty list": [],
    "a list of two": ["{}", "{}"],
    "a list of no text": [5],
    "joined": '{"a":1},{"b":2}',
}


@pytest.mark.parametrize("spoilt", SPOILT.values(), ids=list(SPOILT))
def test_what_cannot_be_read_is_left_out_and_not_counted(session: Session, do: Do, look: Store, spoilt: Any) -> None:
    ours = session()
    items: list[Any] = [{"n": n} for n in range(6)]
    do(ours.add_items(items))
    with look.begin() as tx:
        listed = tx.chat.messages.list("user-1")
        for place in (1, 3, 4, 5):
            kept = dict.fromkeys(listed[place]["metadata"])
            tx.chat.messages.update_metadata(listed[place]["id"], kept)
            tx.chat.messages.update_metadata(listed[place]["id"], dict.fromkeys(kept, spoilt))
    assert do(ours.get_items()) == do(ours.get_items(3)) == [items[0], items[2]]
    assert do(ours.get_items(1)) == [items[2]]
    assert [do(ours.pop_item()) for _ in range(3)] == [items[2], items[0], None]
    do(ours.add_items([{"n": 7}]))
    assert do(ours.get_items()) == [{"n": 7}]


def test_messages_that_are_no_items_are_nobody_s_business(session: Session, do: Do, look: Store) -> None:
    ours = session()
    do(ours.add_items([{"n": 0}]))
    with look.begin() as tx:
        tx.chat.messages.append("user-1", role="user", parts=[{"type": "text", "text": "hi"}], metadata={"x": 1})
        tx.chat.messages.enqueue("user-1", parts=[{"type": "text", "text": "later"}])
    assert do(ours.get_items(5)) == [{"n": 0}]
    assert do(ours.pop_item()) == {"n": 0}
    with look.read() as tx:
        assert len(tx.chat.messages.list("user-1")) == len(tx.chat.messages.queued("user-1")) == 1
