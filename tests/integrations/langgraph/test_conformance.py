"""The published suite of checkpointers, whole: over both faces, and over a mirror, since it calls only the coroutines."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate

from persist import AsyncStore, Store
from persist.integrations.langgraph import PersistSaver

TESTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


class Mirror(BaseCheckpointSaver[str]):
    """Coroutines that call the synchronous methods of a saver."""

    def __init__(self, saver: PersistSaver) -> None:
        super().__init__()
        self._saver = saver

    async def aput(self, *args: Any) -> Any:
        return self._saver.put(*args)

    async def aput_writes(self, *args: Any, **options: Any) -> None:
        self._saver.put_writes(*args, **options)

    async def aget_tuple(self, config: Any) -> Any:
        return self._saver.get_tuple(config)

    async def alist(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        for found in self._saver.list(*args, **options):
            yield found

    async def adelete_thread(self, thread_id: str) -> None:
        self._saver.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Any) -> None:
        self._saver.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._saver.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        self._saver.prune(thread_ids, strategy=strategy)


async def passed(saver: BaseCheckpointSaver[str]) -> dict[str, int]:
    """Tests that passed, by capability; none failed."""

    @checkpointer_test(name=type(saver).__name__)
    async def given() -> AsyncIterator[BaseCheckpointSaver[str]]:
        yield saver

    report = await validate(given)
    assert [failure for result in report.results.values() for failure in result.failures or []] == []
    return {name: result.tests_passed for name, result in report.results.items()}


@pytest.mark.parametrize("methods", ["coroutines", "synchronous"])
def test_all_81_pass_over_a_store(database_url: str, methods: str) -> None:
    with Store.open(database_url) as store:
        saver = PersistSaver(store)
        assert asyncio.run(passed(saver if methods == "coroutines" else Mirror(saver))) == TESTS
    assert sum(TESTS.values()) == 81


def test_all_81_pass_over_an_async_store(database_url: str) -> None:
    async def run() -> dict[str, int]:
        async with AsyncStore.open(database_url) as store:
            return await passed(PersistSaver(store))

    assert asyncio.run(run()) == TESTS
