"""What the stores refuse, hide and cost: wrong kinds, secrets, round trips; trio; and the example."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord
from pydantic_ai.exceptions import UserError
from pydantic_ai.usage import RunUsage

from persist import AsyncStore, Store
from persist.cli import main
from persist.errors import InvalidValue, StoreCorrupt, UnsupportedEngine
from persist.integrations.pydantic_ai import InvalidInput, PersistConversationStore
from tests.integrations.kits import Do
from tests.integrations.pydantic_ai.scenes import AT, asked, conversation, said, turns
from tests.integrations.telling import SECRET, require_silence
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, require


def test_arguments_of_a_conversation_store(store: Store | AsyncStore, database_url: str, do: Do) -> None:
    conversations = PersistConversationStore(store)
    do(conversations.save(conversation("c", "a")))
    stored = do(conversations.read_record("c"))
    record = ConversationRecord(
        conversation_id="d",
        head_id="e",
        usage=RunUsage(),
        deferred_tool_requests=None,
        scope="s",
        forked_from=None,
        forked_at=None,
        branches=[],
        revision="r",
        updated_at=AT,
    )
    entry = ConversationEntry(id="e", parent_id=None, message=asked("hi"))
    valid: dict[str, dict[str, Any]] = {
        "read_record": {"conversation_id": "c"},
        "read_records": {"scope": "s", "limit": 1},
        "write_record": {"record": record, "new_entries": [entry], "expected_revision": None},
        "read_entry": {"entry_id": stored.head_id},
        "read_history": {"head_id": stored.head_id, "limit": 1},
        "delete_record": {"conversation_id": "c", "expected_revision": "another"},
    }
    require_typed_errors(lambda: conversations, valid, do=do, database_url=database_url, error=UserError)


@pytest.mark.parametrize("wrong", WRONG, ids=KINDS)
def test_what_is_no_store(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="expected a Store or an AsyncStore"):
        PersistConversationStore(wrong)


# How often the conversation store waits for an answer of Postgres.


ROWS = (
    Row("write_record", 2),
    Row("delete_record", 2),
    Row("read_record", 1),
    Row("read_records", 1),
    Row("read_history", 1),
    Row("read_entry", 1),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_method_keeps_its_bound(row: Row, meter: Meter, do: Do) -> None:
    with Store.open(meter.url) as store:
        conversations, numbers = PersistConversationStore(store), count()
        written: list[ConversationRecord] = []

        def write() -> None:
            entry = ConversationEntry(parent_id=None, message=asked("a"))
            record = ConversationRecord(conversation_id=f"c{next(numbers)}", head_id=entry.id)
            do(conversations.write_record(record, new_entries=[entry], expected_revision=None))
            written.append(record)

        def delete() -> None:
            gone = written.pop()
            do(conversations.delete_record(gone.conversation_id, expected_revision=gone.revision))

        for _ in range(20):
            write()
        head = written[0].head_id
        assert head is not None
        methods: dict[str, Callable[[], object]] = {
            "write_record": write,
            "delete_record": delete,
            "read_record": lambda: do(conversations.read_record("c0")),
            "read_records": lambda: do(conversations.read_records()),
            "read_history": lambda: do(conversations.read_history(head)),
            "read_entry": lambda: do(conversations.read_entry(head)),
        }
        require(complaint(row.name, row.bound, meter.flights(methods[row.name], bound=row.bound)))


# What is stored stands in no error of the conversations, nor in those that one comes from, nor in the log.


PROMPT = {"part_kind": "user-prompt", "content": {"a": SECRET}, "timestamp": SECRET}
NO_MESSAGES: dict[str, Any] = {
    "a value": {"kind": "request", "parts": [PROMPT]},
    "a kind": {"kind": SECRET, "parts": []},
    "a text": SECRET,
}


@pytest.mark.parametrize("bad", NO_MESSAGES)
def test_a_message_that_cannot_be_read_is_not_told(
    conversations: PersistConversationStore, do: Do, execute: Callable[[str], int], bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    do(conversations.save(conversation("c", "one", "two")))
    entries = do(conversations.load_entries("c"))
    assert execute(f"UPDATE history_entries SET message_json = '{json.dumps(NO_MESSAGES[bad])}' WHERE id = '{entries[1].id}'")
    with caplog.at_level(logging.DEBUG):
        do(conversations.load("c"))
        assert entries[1].id in caplog.text
        with pytest.raises(StoreCorrupt, match="none of Pydantic AI") as caught:
            do(conversations.read_entry(entries[1].id))
    require_silence(caught, caplog)


def test_what_json_does_not_say_is_not_told_either(
    conversations: PersistConversationStore, do: Do, execute: Callable[[str], int]
) -> None:
    do(conversations.save(conversation("c", "one")))
    entry = do(conversations.load_entries("c"))[0]
    for extra in ([[[SECRET, "x"], "float", "1"]], [[["x"], "float", SECRET]], [[[0, "x"], "bytes", SECRET]]):
        assert execute(f"UPDATE history_entries SET extra_json = '{json.dumps(extra)}' WHERE id = '{entry.id}'") == 1
        with pytest.raises(StoreCorrupt, match="none of Pydantic AI") as caught:
            do(conversations.read_entry(entry.id))
        require_silence(caught)


def test_a_record_that_is_none_is_not_told(
    conversations: PersistConversationStore, do: Do, execute: Callable[[str], int]
) -> None:
    do(conversations.save(conversation("c", "one")))
    for column, bad in (
        ("usage_json", {"input_tokens": SECRET}),
        ("usage_json", {"details": {SECRET: "x"}}),
        ("deferred_json", {"calls": [{"tool_name": [SECRET]}]}),
    ):
        assert execute(f"UPDATE history_records SET {column} = '{json.dumps(bad)}'") == 1
        with pytest.raises(StoreCorrupt, match="no conversation of Pydantic AI") as caught:
            do(conversations.load("c"))
        require_silence(caught)


def test_a_message_that_is_refused_is_not_told(conversations: PersistConversationStore, do: Do) -> None:
    given = conversation("c", "one")
    wrong: Any = given.messages[0]
    wrong.parts[0].content = {"a": SECRET}
    assert wrong.parts[0].timestamp == AT
    with pytest.raises(InvalidValue) as caught:
        do(conversations.save(given))
    require_silence(caught)


ROOT = Path(__file__).parents[3]


@pytest.mark.long
def test_the_example_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    line = [sys.executable, str(ROOT / "examples/pydantic_ai_app.py"), str(tmp_path / "state.db")]
    killed = subprocess.run([*line, "--crash-after", "2"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (killed.returncode, killed.stdout.count("\n")) == (9, 2)
    resumed = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert resumed.returncode == 0
    assert resumed.stdout == "What is left? That was question 3.\nAre we done? That was question 4.\n"


# The store on trio: a Store is used from threads, an AsyncStore is refused by a sentence.


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


# Messages and records that other programs, or other releases of Pydantic AI, wrote.


Execute = Callable[[str], int]

BROKEN_MESSAGES = {
    "number": "5",
    "null": "null",
    "list": "[]",
    "nothing": "{}",
    "no parts": '{"kind": "request"}',
    "a later part": '{"kind": "request", "parts": [{"part_kind": "later"}]}',
}


@pytest.mark.parametrize("bad", BROKEN_MESSAGES)
def test_json_that_is_no_message_is_left_out_of_a_conversation(
    conversations: PersistConversationStore, do: Do, execute: Execute, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    do(conversations.save(conversation("c", "one", "two")))
    entries = do(conversations.load_entries("c"))
    assert execute(f"UPDATE history_entries SET message_json = '{BROKEN_MESSAGES[bad]}' WHERE id = '{entries[1].id}'") == 1
    with caplog.at_level(logging.WARNING, "persist"):
        loaded = do(conversations.load("c"))
    assert [entries[1].id in record.getMessage() for record in caplog.records] == [True]
    assert said(loaded.messages) == ["one", "two", "two!"]
    assert said(do(conversations.load("c", limit=2)).messages) == ["two", "two!"]
    with pytest.raises(StoreCorrupt, match="none of Pydantic AI"):
        do(conversations.read_entry(entries[1].id))
    loaded.messages.extend(turns("three"))
    do(conversations.save(loaded))
    assert said(do(conversations.load("c")).messages) == ["one", "two", "two!", "three", "three!"]
    assert execute(f"UPDATE history_entries SET message_json = '{{}}' WHERE id <> '{entries[0].id}'") == 5
    assert said(do(conversations.load("c")).messages) == ["one"]


@pytest.mark.parametrize("bad", ["5", "[]", "null", '"x"', '{"input_tokens": "x"}'])
def test_a_record_that_is_none_is_listed_and_shown(
    conversations: PersistConversationStore, do: Do, execute: Execute, database_url: str, bad: str
) -> None:
    do(conversations.save(conversation("c", "one")))
    assert execute(f"UPDATE history_records SET usage_json = '{bad}'") == 1
    with pytest.raises(StoreCorrupt, match="no conversation of Pydantic AI"):
        do(conversations.load("c"))
    for command in (["ls", "histories"], ["show", "c"]):
        result = CliRunner().invoke(main, [*command, "--url", database_url])
        assert result.exit_code == 0, result.exception
        assert "c" in result.output
