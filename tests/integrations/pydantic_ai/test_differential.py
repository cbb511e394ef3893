"""Random histories of calls end as they do in the framework's store in memory: the same records, messages and errors."""

import asyncio
import itertools
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.usage import RunUsage
from sqlalchemy import func, select

from persist import Store
from persist.framework_state.histories.models import entries
from persist.integrations.pydantic_ai import PersistConversationStore
from persist.maintenance import doctor
from tests.integrations.kits import Do
from tests.integrations.pydantic_ai.scenes import AT, asked, conversation, said, turns

IDS, SCOPES = ["c", "C", "d"], [None, "maria", "otto"]
CHOICE = st.sampled_from(IDS)
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("save"), CHOICE, st.integers(0, 3), st.sampled_from(SCOPES)),
        st.tuples(st.just("rewrite"), CHOICE, st.integers(0, 4), st.sampled_from(SCOPES)),
        st.tuples(st.just("branch"), CHOICE, st.integers(0, 6), st.just(None)),
        st.tuples(st.just("fork"), CHOICE, st.integers(0, 6), CHOICE),
        st.tuples(st.just("delete"), CHOICE, st.just(0), st.sampled_from(SCOPES)),
        st.tuples(st.just("write"), CHOICE, st.integers(0, 9), st.sampled_from(["right", "wrong", "none"])),
    ),
    max_size=12,
)


class Side:
    """A store, and the names that a history of calls gives to ids that each store mints anew."""

    def __init__(self, store: ConversationStore, prefix: str) -> None:
        self.store, self.prefix = store, prefix

    async def carry_out(self, number: int, call: tuple[str, str, int, Any]) -> Any:
        name, id, count, more = call
        id, scope = self.prefix + id, more
        try:
            return await getattr(self, name)(number, id, count, scope)
        except (UserError, LookupError) as error:
            return "conflict" if isinstance(error, ConversationConflict) else "refused"

    async def save(self, number: int, id: str, count: int, scope: str | None) -> Any:
        loaded = await self.store.load(id, limit=2 if number % 3 == 0 else None) or conversation(id)
        loaded.messages += turns(*(f"{number}.{one}" for one in range(count)))
        loaded.usage += RunUsage(requests=count)
        return len(await self.store.save(loaded, scope=scope))

    async def rewrite(self, number: int, id: str, count: int, scope: str | None) -> Any:
        loaded = await self.store.load(id)
        messages = [] if loaded is None else loaded.messages[:count]
        changed = conversation(id)
        changed.messages = [*messages, *turns(f"{number}")]
        changed.revision = None if loaded is None else loaded.revision
        return len(await self.store.save(changed, scope=scope))

    async def branch(self, number: int, id: str, count: int, scope: str | None) -> Any:
        record = await self.store.read_record(id)
        if record is None:
            return None
        if record.branches and count > 4:
            made = await self.store.branch(id, from_entry=record.branches[0], expected_revision=record.revision)
        else:
            made = await self.store.branch(id, at=count, expected_revision=record.revision)
        return said(made.messages)

    async def fork(self, number: int, id: str, count: int, other: str) -> Any:
        made = await self.store.fork(id, at=count, new_conversation_id=f"{self.prefix}{other}.{number % 2}")
        return said(made.messages)

    async def delete(self, number: int, id: str, count: int, scope: str | None) -> Any:
        return await self.store.delete(id, scope=scope)

    async def write(self, number: int, id: str, count: int, expected: str) -> Any:
        record = await self.store.read_record(id) or ConversationRecord(conversation_id=id, head_id=None)
        entries = [ConversationEntry(parent_id=record.head_id, message=asked(f"{number}"))] if count % 3 else []
        known = {"right": record.revision if await self.store.read_record(id) else None, "wrong": "wrong", "none": None}
        head = entries[0].id if entries else record.head_id if count % 2 else "unknown"
        left = [*record.branches, *([record.head_id] if record.head_id not in (None, head) else [])]
        changed = replace(record, head_id=head, branches=left, revision=f"{number}", updated_at=AT + timedelta(seconds=number))
        return await self.store.write_record(changed, new_entries=entries, expected_revision=known[expected])

    async def everything(self) -> Any:
        found: dict[str, Any] = {}
        for record in await self.store.read_records():
            if not record.conversation_id.startswith(self.prefix):
                continue
            history = await self.store.read_history(record.head_id)
            left = [said([entry.message for entry in await self.store.read_history(tip)]) for tip in record.branches]
            shown = said([entry.message for entry in history])
            windows = [said([one.message for one in await self.store.read_history(record.head_id, limit=n)]) for n in (0, 1, 3)]
            rest = (record.usage, record.scope, (record.forked_from or "").removeprefix(self.prefix))
            found[record.conversation_id.removeprefix(self.prefix)] = (shown, windows, left, rest)
        for scope in SCOPES[1:]:
            listed = [one.conversation_id.removeprefix(self.prefix) for one in await self.store.read_records(scope=scope)]
            found[f"of {scope}"] = sorted(one for one in listed if one in found)
        return sorted(found.items())


async def compare(ours: Side, theirs: Side, calls: list[Any]) -> None:
    for number, call in enumerate(calls):
        assert await ours.carry_out(number, call) == await theirs.carry_out(number, call), (number, call)
    assert await ours.everything() == await theirs.everything()
    for record in await ours.store.read_records():
        await ours.store.delete(record.conversation_id)


def test_random_histories_end_as_in_memory(database_url: str) -> None:
    prefixes = (f"{number}-" for number in itertools.count())
    with Store.open(database_url) as store, asyncio.Runner() as runner:

        @settings(max_examples=40, deadline=None)
        @given(calls=CALLS)
        def compared(calls: list[Any]) -> None:
            prefix = next(prefixes)
            sides = Side(PersistConversationStore(store), prefix), Side(InMemoryConversationStore(), prefix)
            runner.run(compare(*sides, calls))

        compared()


# Several processes and tasks on one conversation, kills, cancellations; and forks that are deleted while others are made.


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
