"""On trio a Store is used from threads, and an AsyncStore is refused."""

from typing import Any

import pytest
import trio

from persist import Store
from persist.errors import UnsupportedEngine
from persist.integrations.langgraph import PersistSaver, PersistStore
from tests.integrations.langgraph.scenes import checkpoint, config, metadata


async def embed(texts: list[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0] for text in texts]


def test_a_saver_on_trio(store: Any) -> None:
    saver = PersistSaver(store)

    async def story() -> None:
        await saver.aput(config(), checkpoint("1", {"a": 1}), metadata(), {"a": 1})
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(saver.aput_writes, config(id="1"), [("a", number)], f"task{number}")
        found = await saver.aget_tuple(config())
        assert found is not None
        assert sorted(value for _, _, value in found.pending_writes or ()) == [0, 1, 2, 3, 4]
        assert len([one async for one in saver.alist(config())]) == 1
        await saver.adelete_thread("t")
        assert await saver.aget_tuple(config()) is None

    if isinstance(store, Store):
        trio.run(story)
        return
    with pytest.raises(UnsupportedEngine, match="elsewhere give the adapter a Store"):
        trio.run(story)


def test_a_store_on_trio(store: Any) -> None:
    index: Any = {"dims": 2, "embed": embed}
    items = PersistStore(store, index=index)

    async def story() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(items.aput, ("n",), f"k{number}", {"text": "x" * number})
        assert len(await items.asearch(("n",), query="xx", limit=3)) == 3
        assert await items.aget(("n",), "k1") is not None
        assert await items.alist_namespaces() == [("n",)]

    if isinstance(store, Store):
        trio.run(story)
        return
    with pytest.raises(UnsupportedEngine, match="elsewhere give the adapter a Store"):
        trio.run(items.aget, ("n",), "k")
