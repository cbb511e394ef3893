"""Threads, processes and event loops that share a session, on asyncio and on trio."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from persist import AsyncStore, Store
from persist.errors import UnsupportedEngine
from persist.integrations.claude_agent_sdk import PersistSessionStore
from tests.aio.loops import in_loops
from tests.integrations.claude_agent_sdk.worker import KEY, batch
from tests.integrations.kits import Do
from tests.subprocesses import Spawn

BATCH = 4


def assert_whole(entries: Sequence[Any], writers: int, batches: int) -> None:
    """Every batch is there once, together, and in the order in which its writer wrote."""
    assert len(entries) == writers * batches * BATCH
    groups = [list(entries[at : at + BATCH]) for at in range(0, len(entries), BATCH)]
    assert all([one["of"] for one in group] == [[*group[0]["of"][:2], place] for place in range(BATCH)] for group in groups)
    by_writer: dict[str, list[int]] = {}
    for group in groups:
        by_writer.setdefault(group[0]["of"][0], []).append(group[0]["of"][1])
    assert list(by_writer.values()) == [list(range(batches))] * writers


def assert_summary_is_of_the_last(do: Do, sessions: Any) -> None:
    (summary,) = do(sessions.list_session_summaries("p"))
    assert summary["data"]["custom_title"] == do(sessions.tail(KEY, 1))[0]["customTitle"]


def test_one_store_on_many_loops(sessions: Any, do: Do) -> None:
    async def work(name: int) -> None:
        for number in range(2):
            await sessions.append(KEY, batch(str(name), number))

    in_loops(8, work)
    assert_whole(do(sessions.load(KEY)), 8, 2)
    assert_summary_is_of_the_last(do, sessions)


def test_a_batch_that_is_retried_at_once_is_stored_once(sessions: Any, do: Do) -> None:
    async def retried() -> None:
        given = [entry for number in range(5) for entry in batch("a", number)[:3]]
        await asyncio.gather(*[sessions.append(KEY, given) for _ in range(6)])

    do(retried())
    assert [entry["uuid"] for entry in do(sessions.load(KEY))] == [
        f"a-{number}-{place}" for number in range(5) for place in range(3)
    ]


@pytest.mark.long
def test_processes_share_a_session(spawn: Spawn, look: Store, do: Do) -> None:
    workers = [spawn("append", name, 8, stdin=True) for name in "ab"]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.tell()
    for worker in workers:
        worker.communicate()
        assert worker.returncode == 0
    sessions: Any = PersistSessionStore(look)
    assert_whole(do(sessions.load(KEY)), 2, 8)
    assert_summary_is_of_the_last(do, sessions)
    for name in "ab":
        assert_whole(do(sessions.load({**KEY, "subpath": f"subagents/agent-{name}"})), 1, 8)


@pytest.mark.long
def test_a_process_that_is_killed_leaves_whole_batches(spawn: Spawn, look: Store, do: Do) -> None:
    worker = spawn("append", "a", 10_000, stdin=True)
    assert worker.stdout.readline() == "ready\n"
    worker.tell()
    said = [int(worker.stdout.readline()) for _ in range(5)]
    time.sleep(0.01)
    worker.kill()
    worker.wait(30)
    sessions: Any = PersistSessionStore(look)
    main, part = do(sessions.load(KEY)), do(sessions.load({**KEY, "subpath": "subagents/agent-a"}))
    assert len(main) // BATCH >= len(part) // BATCH > said[-1]
    assert_whole(main, 1, len(main) // BATCH)
    assert_whole(part, 1, len(part) // BATCH)
    assert_summary_is_of_the_last(do, sessions)
    do(sessions.append(KEY, main[-BATCH:]))  # the mirror tries again
    assert do(sessions.load(KEY)) == [*main, main[-1]]


def test_deletions_beside_appends_leave_whole_batches(sessions: Any, do: Do, look: Store) -> None:
    async def both() -> None:
        async def write(name: str) -> None:
            for number in range(6):
                await sessions.append(KEY, batch(name, number))
                await sessions.append({**KEY, "subpath": "subagents/agent-1"}, batch(name, number))

        async def delete() -> None:
            for _ in range(6):
                await sessions.delete(KEY)

        await asyncio.gather(write("a"), write("b"), delete())

    do(both())
    for key in (KEY, {**KEY, "subpath": "subagents/agent-1"}):
        entries = do(sessions.load(key)) or []
        assert [entry["of"][2] for entry in entries] == [0, 1, 2, 3] * (len(entries) // BATCH)
    do(sessions.delete(KEY))
    assert do(sessions.load(KEY)) is None
    with look.read() as tx:
        assert tx.transcripts.sessions.list().items == []


# On trio, as the framework allows: a Store is used from threads, an AsyncStore is refused.


def test_on_trio_a_store_is_used_from_threads(database_url: str) -> None:
    async def main(sessions: Any) -> Any:
        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(sessions.append, KEY, batch(name, 0))
        with trio.move_on_after(0.001):
            await sessions.append(KEY, batch("d", 0))
        return await sessions.load(KEY)

    with Store.open(database_url) as store:
        entries = trio.run(main, PersistSessionStore(store))
    assert len(entries) in (3 * BATCH, 4 * BATCH)
    assert [entry["of"][2] for entry in entries] == [0, 1, 2, 3] * (len(entries) // BATCH)


def test_on_trio_an_async_store_is_refused(database_url: str, do: Do) -> None:
    store: Any = do(AsyncStore.open(database_url))

    async def main() -> None:
        with pytest.raises(UnsupportedEngine, match="asyncio"):
            await PersistSessionStore(store).append(KEY, batch("a", 0))

    trio.run(main)
    do(store.close())
