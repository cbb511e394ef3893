"""The framework's compaction over a session: what its own SQL sessions do, kills, and what others write meanwhile."""

import asyncio
import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agents.extensions.memory import EncryptedSession
from agents.memory import SessionSettings, SQLiteSession

from persist import Store
from persist.integrations.openai_agents import InvalidItem, PersistSession
from tests.integrations.kits import Do
from tests.integrations.openai_agents.compacting import KEY, Client, compacting, talk
from tests.integrations.openai_agents.conftest import Session
from tests.integrations.openai_agents.scripts import call, message

ROOT = Path(__file__).parents[3]


def said(*texts: str) -> list[Any]:
    return [{"role": "user", "content": text} for text in texts]


@pytest.mark.parametrize("encrypted", ["", "inside", "around"])
@pytest.mark.parametrize("limit", [None, 3])
async def test_a_conversation_is_compacted_as_over_the_framework_s_own_session(
    session: Session, encrypted: str, limit: int | None
) -> None:
    settings = SessionSettings(limit=limit)
    theirs = SQLiteSession("user-1", session_settings=settings)
    try:
        clients = Client(), Client()
        found = await talk(compacting(session(session_settings=settings), clients[0], encrypted=encrypted), 4)
        assert json.dumps(found) == json.dumps(await talk(compacting(theirs, clients[1], encrypted=encrypted), 4))
        assert clients[0].asked == clients[1].asked > 0
    finally:
        theirs.close()


class History:
    """Random calls, as compaction makes them, of one session."""

    def __init__(self, inner: Any, seed: int) -> None:
        self.inner, self.dice, self.number = inner, random.Random(seed), 0

    def items(self, most: int) -> list[Any]:
        found: list[Any] = []
        for _ in range(self.dice.randint(0, most)):
            self.number += 1
            kinds: list[Any] = [
                {"n": self.number},
                {"n": float("nan")},
                message("hi", f"msg_{self.number}"),
                call("x", "{}", "c"),
            ]
            found.append(self.dice.choice([*kinds, {"type": "function_call_output", "call_id": "c", "output": "\x00\ud800"}]))
        return found

    async def run(self) -> list[Any]:
        log: list[Any] = []
        for _ in range(25):
            match self.dice.randint(0, 5):
                case 0 | 1:
                    await self.inner.add_items(self.items(5))
                case 2:
                    log.append(await self.inner.pop_item())
                case _:
                    snapshot = await self.inner._get_compaction_snapshot(self.dice.randint(1, 8), prune_prefix=self.prune())
                    log.append((snapshot.items, snapshot.complete))
                    if self.dice.random() < 0.3:
                        await self.inner.add_items(self.items(2))
                    if self.dice.random() < 0.1:
                        log.append(await self.inner.pop_item())
                    start = self.dice.randint(0, len(snapshot.items))
                    log.append(await snapshot.replace_suffix(start, self.items(3)))
            log.append(await self.inner.get_items())
        return log

    def prune(self) -> Any:
        before = self.dice.choice([None, self.number - 8])
        return None if before is None else lambda item: item.get("n", before) < before


@pytest.mark.parametrize("seed", range(6))
async def test_random_histories_end_as_over_the_framework_s_own_session(session: Session, seed: int) -> None:
    theirs = SQLiteSession("user-1")
    try:
        assert json.dumps(await History(session(), seed).run()) == json.dumps(await History(theirs, seed).run())
    finally:
        theirs.close()


@pytest.mark.parametrize("encrypted", ["", "inside", "around"])
def test_what_others_write_while_a_summary_is_made_stays(session: Session, do: Do, encrypted: str) -> None:
    other = session()
    others: Any = EncryptedSession("user-1", other, KEY) if encrypted else other

    async def interrupted() -> list[Any]:
        outer = compacting(session(), Client(lambda: others.add_items(said("from elsewhere"))), encrypted=encrypted)
        await talk(outer, 2)
        found: list[Any] = await outer.get_items()
        return found

    texts = [item.get("content") for item in do(interrupted())]
    assert [text for text in texts if isinstance(text, str)] == ["question 0", "question 1", "from elsewhere"]


def test_a_message_of_the_chat_is_no_item_and_stays(session: Session, do: Do, look: Store) -> None:
    ours = session()

    async def compact() -> None:
        await ours.add_items([*said("a"), call("x", "{}", "c"), {"type": "function_call_output", "call_id": "c", "output": "o"}])
        snapshot = await ours._get_compaction_snapshot(5)
        with look.begin() as tx:
            tx.chat.messages.append("user-1", role="system", parts=[{"type": "text", "text": "hi"}])
        assert await snapshot.replace_suffix(2, said("summary"))

    do(compact())
    assert do(ours.get_items()) == [*said("a"), call("x", "{}", "c"), *said("summary")]
    with look.read() as tx:
        listed = tx.chat.messages.list("user-1")
    assert [message["role"] for message in listed] == ["user", "assistant", "system", "user"]
    assert listed[1]["parts"][0]["state"] == "input-available"  # its output is gone


def test_what_expired_is_deleted_from_the_oldest_on(session: Session, do: Do, look: Store) -> None:
    ours = session()

    async def compact() -> None:
        await ours.add_items([{"n": n} for n in [*range(1200), 5, *range(3000, 3010)]])
        with look.begin() as tx:
            tx.chat.messages.append("user-1", role="system", parts=[{"type": "text", "text": "not an item"}])
        snapshot = await ours._get_compaction_snapshot(4, prune_prefix=lambda item: item["n"] < 1199)
        assert not snapshot.complete
        assert await snapshot.replace_suffix(1, said("summary"))

    do(compact())
    assert do(ours.get_items()) == [{"n": n} for n in [1199, 5, *range(3000, 3007)]] + said("summary")


def test_a_snapshot_with_an_item_that_nobody_can_read_is_none(session: Session, do: Do, look: Store) -> None:
    ours = session()
    do(ours.add_items(said("a", "b", "c")))
    with look.begin() as tx:
        spoilt = tx.chat.messages.list("user-1")[1]
        tx.chat.messages.update_metadata(spoilt["id"], {"openai_agents": "{"})
    assert do(ours._get_compaction_snapshot(2)) is None
    assert do(ours._get_compaction_snapshot(1)).items == said("c")


def test_a_subclass_may_change_items_so_nothing_passes_by_it(store: Any, do: Do) -> None:
    class Own(PersistSession):
        pass

    assert do(Own("user-1", store)._get_compaction_snapshot(5)) is None
    assert do(Own("user-1", store)._atomic_replace_items(said("a"))) is False
    assert do(Own("user-1", store).get_items()) == []


def test_a_summary_that_cannot_be_stored_changes_nothing(session: Session, do: Do) -> None:
    ours = session()
    do(ours.add_items(said("a", "b")))
    snapshot = do(ours._get_compaction_snapshot(5))
    wrong: list[Any] = [*said("c"), {"a": b"x"}]
    for replacing in (snapshot.replace_suffix(0, wrong), ours._atomic_replace_items(wrong)):
        with pytest.raises(InvalidItem, match=r"items\[1\]"):
            do(replacing)
    assert do(ours.get_items()) == said("a", "b")
    assert do(snapshot.replace_suffix(2, said("c"))) is False
    assert do(snapshot.replace_suffix(0, [])) is True
    assert do(ours.get_items()) == []


async def test_a_cancelled_replacement_happens_wholly_or_not_at_all(session: Session) -> None:
    for number in range(20):
        await session().clear_session()
        await session().add_items(said("a", "b"))
        snapshot = await session()._get_compaction_snapshot(5)
        replacing = snapshot.replace_suffix(0, said("c")) if number % 2 else session()._atomic_replace_items(said("c"))
        running = asyncio.ensure_future(replacing)
        await asyncio.sleep(0.0003 * (number % 7))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        found = await session().get_items()
        assert found in (said("a", "b"), said("c"))
        await asyncio.sleep(0)
        assert await session().get_items() == found


@pytest.mark.long
@pytest.mark.parametrize("moment", ["asked", "replaced"])
@pytest.mark.parametrize("way", ["automatic", "by hand", "inside", "around"])
def test_a_kill_never_empties_a_conversation(database_url: str, look: Store, moment: str, way: str) -> None:
    line = [sys.executable, "-m", "tests.integrations.openai_agents.worker", "compact", database_url, moment, way]
    assert subprocess.run(line, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    inner: Any = PersistSession("user-1", look)
    outer: Any = EncryptedSession("user-1", inner, KEY) if way in ("inside", "around") else inner
    found = asyncio.run(outer.get_items())
    assert [item.get("content") for item in found if item["role"] == "user"] == ["question 0", "question 1"]
    assert len(found) == 4
