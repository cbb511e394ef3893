"""On trio, as the framework allows: a Store is used from threads, an AsyncStore is refused."""

from typing import Any

import pytest
import trio

from persist import AsyncStore, Store
from persist.errors import UnsupportedEngine
from persist.integrations.claude_agent_sdk import PersistSessionStore
from tests.integrations.claude_agent_sdk.conftest import Do
from tests.integrations.claude_agent_sdk.worker import KEY, batch

BATCH = 4


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
