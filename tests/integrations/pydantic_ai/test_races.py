"""Several processes and tasks on one conversation, kills, cancellations; and forks that are deleted while others are made."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic_ai.exceptions import UserError
from sqlalchemy import func, select

from persist import Store
from persist.framework_state.histories.models import entries
from persist.integrations.pydantic_ai import PersistConversationStore
from persist.maintenance import doctor
from tests.integrations.pydantic_ai.conftest import Do
from tests.integrations.pydantic_ai.scenes import conversation, said, turns

ROOT = Path(__file__).parents[3]
WORKER = [sys.executable, "-m", "tests.integrations.pydantic_ai.worker"]


@pytest.mark.long
def test_processes_share_a_conversation(database_url: str) -> None:
    """Compare-and-swap: of two processes that save at once one loads again, so that no turn is lost."""
    Store.open(database_url).close()
    started = [subprocess.Popen([*WORKER, "append", database_url, name, "8"], cwd=ROOT) for name in "ab"]
    assert [process.wait(120) for process in started] == [0, 0]
    with Store.open(database_url) as store:
        loaded = asyncio.run(PersistConversationStore(store).load("c"))
        assert loaded is not None
        words = said(loaded.messages)
        assert len(words) == 32
        assert words[1::2] == [f"{word}!" for word in words[::2]]
        for name in "ab":
            assert [word for word in words[::2] if word[0] == name] == [f"{name}{number}" for number in range(8)]


def test_forks_are_made_while_others_are_deleted(conversations: PersistConversationStore, do: Do, database_url: str) -> None:
    """A fork of a conversation that is deleted meanwhile is a conflict, or it keeps the messages that it shares."""

    async def fork(number: int) -> None:
        try:
            made = await conversations.fork("c", at=3, new_conversation_id=f"fork{number}")
            made.messages += turns(f"x{number}")
            await conversations.save(made)
        except UserError:  # not there, or a conflict
            return

    async def together() -> list[str]:
        for round in range(4):
            await conversations.save(conversation("c", "a", "b", "c"))
            await asyncio.gather(*[fork(10 * round + number) for number in range(6)], conversations.delete("c"))
        left = await conversations.list_conversations()
        for record in left:
            loaded = await conversations.load(record.conversation_id)
            assert loaded is not None
            assert said(loaded.messages)[:3] == ["a", "a!", "b"]
        return [record.conversation_id for record in left]

    for id in do(together()):
        do(conversations.delete(id))
    with Store.open(database_url) as store:
        assert doctor(store) == []
        with store.read() as tx:
            assert store.histories.records.latest() == []
            assert tx._work.found(select(func.count()).select_from(entries))[0][0] == 0


@pytest.mark.long
def test_a_killed_process_leaves_whole_turns(database_url: str) -> None:
    Store.open(database_url).close()
    for kill_after in (1, 3):
        with subprocess.Popen([*WORKER, "forever", database_url], cwd=ROOT, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(kill_after):
                assert process.stdout.readline()
            process.kill()
        with Store.open(database_url) as store:
            conversations = PersistConversationStore(store)
            loaded = asyncio.run(conversations.load("c"))
            assert loaded is not None
            assert len(loaded.messages) % 4 == 0
            assert doctor(store) == []
            for record in store.histories.records.latest():
                assert asyncio.run(conversations.load(record.id)) is not None
                if record.id != "c":
                    asyncio.run(conversations.delete(record.id))
