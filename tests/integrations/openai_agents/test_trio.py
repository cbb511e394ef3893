"""On trio a Store is used from threads, and an AsyncStore is refused."""

from typing import Any

import pytest
import trio

from persist import AsyncStore, Store
from persist.errors import UnsupportedEngine
from persist.integrations.openai_agents import PersistSession


def test_on_trio(store: Store | AsyncStore) -> None:
    session: Any = PersistSession("s", store)  # of any type: items are plain dicts

    async def several() -> list[Any]:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(session.add_items, [{"role": "user", "content": f"{number}"}])
        return list(await session.get_items())

    if isinstance(store, Store):
        assert sorted(item["content"] for item in trio.run(several)) == list("01234")
        return
    for call in (lambda: session.add_items([{"role": "user", "content": "hi"}]), session.get_items, session.pop_item):
        with pytest.raises(UnsupportedEngine, match="elsewhere give the adapter a Store"):
            trio.run(call)
