"""The store on trio: a Store is used from threads, an AsyncStore is refused by a sentence."""

import asyncio
from pathlib import Path

import pytest
import trio

from persist import AsyncStore, Store
from persist.errors import UnsupportedEngine
from persist.integrations.pydantic_ai import PersistConversationStore
from tests.integrations.pydantic_ai.scenes import conversation, said


def test_a_store_works_on_trio(database_url: str) -> None:
    with Store.open(database_url) as store:
        conversations = PersistConversationStore(store)

        async def talk() -> None:
            await conversations.save(conversation("c", "a"))
            with trio.move_on_after(0):
                await conversations.save(conversation("d", "a"))
            loaded = await conversations.load("c")
            assert loaded is not None
            assert said(loaded.messages) == ["a", "a!"]

        trio.run(talk)


def test_an_async_store_is_refused_on_trio(tmp_path: Path) -> None:
    async def opened() -> AsyncStore:
        return await AsyncStore.open(f"sqlite:///{(tmp_path / 'state.db').as_posix()}")

    with asyncio.Runner() as runner:
        store = runner.run(opened())
        with pytest.raises(
            UnsupportedEngine, match="it works on asyncio's event loops alone; elsewhere give the adapter a Store"
        ):
            trio.run(PersistConversationStore(store).load, "c")
        runner.run(store.close())
