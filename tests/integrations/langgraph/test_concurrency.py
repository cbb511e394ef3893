"""20 at once: threads of a process, and processes, on one thread id that nobody used before."""

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.integrations.langgraph import PersistSaver, PersistStore
from tests.aio.loops import in_loops
from tests.integrations.langgraph.scenes import checkpoint, config, messages, metadata
from tests.subprocesses import ROOT

WORKERS = 20


def test_20_threads_lose_nothing(database_url: str) -> None:
    failures: list[BaseException] = []
    with Store.open(database_url) as store:
        saver, items = PersistSaver(store), PersistStore(store)
        start = threading.Barrier(WORKERS)

        def work(name: str) -> None:
            try:
                start.wait(30)
                for number in range(5):
                    id = f"{number}-{name}"
                    put = checkpoint(id, {"said": messages(5 + number)}, {"said": id})
                    saver.put(config(), put, metadata(), {"said": id})
                    saver.put_writes(config(id="shared"), [("c", name)], name)
                    items.put(("shared",), name, {"n": number})
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(f"{number:02}",)) for number in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert failures == []
        found = list(saver.list(config()))
        assert len(found) == WORKERS * 5
        assert all(one.checkpoint["channel_values"]["said"] == messages(5 + int(one.checkpoint["id"][0])) for one in found)
        saver.put(config(), checkpoint("shared"), metadata(), {})
        writes: Any = saver.get_tuple(config(id="shared"))
        assert [value for _, _, value in writes.pending_writes] == [f"{number:02}" for number in range(WORKERS)]
        assert len(items.search(("shared",), limit=100)) == WORKERS


def test_one_async_store_serves_loops_and_plain_threads_at_once(database_url: str) -> None:
    """As LangGraph is used: `ainvoke` in one loop, the synchronous methods in a thread without one, a loop in yet another."""
    store = asyncio.run(_opened(database_url))
    saver, items = PersistSaver(store), PersistStore(store)

    async def work(number: int) -> None:
        async def one(turn: int) -> None:
            id = f"{number:02}-{turn}"
            await saver.aput(config(), checkpoint(id, {"said": messages(3)}, {"said": id}), metadata(), {"said": id})
            await items.aput(("shared",), id, {"n": number})
            assert await saver.aget_tuple(config(id=id)) is not None

        await asyncio.gather(*(one(turn) for turn in range(4)))

    def plain(number: int) -> None:
        for turn in range(4):
            id = f"{number:02}-{turn}"
            saver.put(config(), checkpoint(id, {"said": messages(3)}, {"said": id}), metadata(), {"said": id})
            items.put(("shared",), id, {"n": number})

    in_loops(9, lambda number: asyncio.to_thread(plain, number) if number % 3 == 0 else work(number))
    assert len(list(saver.list(config()))) == 9 * 4
    assert len(items.search(("shared",), limit=100)) == 9 * 4
    asyncio.run(store.close())


async def _opened(url: str) -> AsyncStore:
    return await AsyncStore.open(url)


@pytest.mark.long
@pytest.mark.parametrize("count", [4])
def test_processes_share_a_thread_from_its_first_use(database_url: str, count: int) -> None:
    line = [sys.executable, "-m", "tests.integrations.langgraph.worker", "first", database_url]
    processes = [
        subprocess.Popen([*line, f"p{number}"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.communicate("go\n", timeout=120)
        assert process.returncode == 0
    with Store.open(database_url) as store:
        found = list(PersistSaver(store).list(config()))
        assert len(found) == count * 10
        assert all(one.checkpoint["channel_values"]["said"] == messages(5 + int(one.checkpoint["id"][0])) for one in found)
        assert {one.pending_writes[0][2][0] for one in found if one.pending_writes} == {f"p{number}" for number in range(count)}
