"""The store as applications use it: load, run, save; branches, forks, scopes; errors of both worlds."""

import dataclasses
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import BinaryContent, ModelMessage, ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage

from persist import Store
from persist.errors import Conflict, InvalidValue, NotFound, PersistError
from persist.integrations.pydantic_ai import ConversationChanged, InvalidInput, MissingEntry, PersistConversationStore
from tests.integrations.alike_keys import ALIKE, NONE
from tests.integrations.kits import Do
from tests.integrations.pydantic_ai.scenes import AT, answered, asked, called, conversation, plain, returned, said, turns


async def test_an_agent_goes_on_where_it_was(conversations: PersistConversationStore) -> None:
    agent = Agent(TestModel(custom_output_text="yes"))
    talked = Conversation(conversation_id="c")
    for turn in range(3):
        result = await agent.run(f"turn {turn}", conversation=talked)
        stored = await conversations.save(result, scope="maria")
        assert len(stored) == 2
        loaded = await conversations.load("c")
        assert loaded is not None
        assert loaded == result.conversation
        talked = loaded
    assert talked.usage.requests == 3
    entries = await conversations.load_entries("c")
    assert entries is not None
    assert [entry.parent_id for entry in entries] == [None, *(entry.id for entry in entries[:-1])]


def test_a_record_comes_back_as_it_was(conversations: PersistConversationStore, do: Do) -> None:
    deferred = DeferredToolRequests(
        approvals=[ToolCallPart("tool", {"z": 1, "a": [None]}, "call")], metadata={"call": {"k": "\x00"}}
    )
    first = ConversationEntry(parent_id=None, message=asked("a"))
    record = ConversationRecord(
        conversation_id="c",
        head_id=first.id,
        usage=RunUsage(requests=2, input_tokens=2**63 - 1, details={"z": 1, "a": 2**64 - 1}, audio_seconds=1.5),
        deferred_tool_requests=deferred,
        scope="",
        forked_from="x",
        forked_at="y",
        branches=[first.id, "other"],
        updated_at=AT,
    )
    do(conversations.write_record(record, new_entries=[first], expected_revision=None))
    assert do(conversations.read_record("c")) == record
    assert do(conversations.read_records(scope="")) == [record]
    assert do(conversations.read_entry(first.id)) == first
    found = do(conversations.read_record("c"))
    found.branches.append("changed")
    found.usage.requests = 9
    assert do(conversations.read_record("c")) == record


async def test_a_conversation_saved_meanwhile_is_not_overwritten(conversations: PersistConversationStore) -> None:
    await conversations.save(conversation("c", "a"))
    one, other = await conversations.load("c"), await conversations.load("c")
    assert one is not None
    assert other is not None
    one.messages += turns("b")
    await conversations.save(one)
    other.messages += turns("x")
    with pytest.raises(ConversationConflict):
        await conversations.save(other)
    record = ConversationRecord(conversation_id="c", head_id=None)
    with pytest.raises(ConversationConflict) as caught:
        await conversations.write_record(record, expected_revision=other.revision)
    assert isinstance(caught.value, ConversationChanged)
    assert isinstance(caught.value, Conflict)
    assert isinstance(caught.value, UserError)
    assert caught.value.conversation_id == "c"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(ConversationConflict):
        await conversations.save(conversation("c", "new"))
    loaded = await conversations.load("c")
    assert loaded is not None
    assert said(loaded.messages) == ["a", "a!", "b", "b!"]


def test_what_is_not_there(conversations: PersistConversationStore, do: Do) -> None:
    assert do(conversations.load("gone")) is None
    assert do(conversations.read_history(None)) == []
    assert do(conversations.read_history("gone", limit=0)) == []
    do(conversations.delete("gone"))
    for call in (conversations.read_entry, conversations.read_history):
        with pytest.raises(MissingEntry) as caught:
            do(call("gone"))
        assert isinstance(caught.value, KeyError)
        assert isinstance(caught.value, NotFound)
        assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value))) == "There is no history entry 'gone'."
    with pytest.raises(ConversationConflict):
        do(conversations.delete_record("gone", expected_revision="1"))
    record = ConversationRecord(conversation_id="c", head_id="gone")
    with pytest.raises(ConversationConflict):
        do(conversations.write_record(record, expected_revision=None))
    assert do(conversations.read_record("c")) is None


def test_what_cannot_be_stored_is_refused(conversations: PersistConversationStore, do: Do) -> None:
    first = ConversationEntry(id="a", parent_id="b", message=asked("a"))
    circle = [first, ConversationEntry(id="b", parent_id="a", message=asked("b"))]
    record = ConversationRecord(conversation_id="c", head_id="b")
    wrong: list[tuple[ConversationRecord, list[ConversationEntry]]] = [
        (record, circle),
        (dataclasses.replace(record, head_id=None, scope="\x00"), []),
        (dataclasses.replace(record, head_id=None, conversation_id="x" * 1000), []),
        (dataclasses.replace(record, head_id=None, updated_at=AT.replace(tzinfo=None)), []),
        (dataclasses.replace(record, head_id=None, usage=RunUsage(input_tokens=2**64)), []),
        (
            dataclasses.replace(
                record, head_id=None, deferred_tool_requests=DeferredToolRequests(metadata={"a": {"b": b"\xff"}})
            ),
            [],
        ),
        (
            dataclasses.replace(
                record, head_id=None, deferred_tool_requests=DeferredToolRequests(metadata={"a": {"b": float("nan")}})
            ),
            [],
        ),
    ]
    for given, entries in wrong:
        with pytest.raises(InvalidInput) as caught:
            do(conversations.write_record(given, new_entries=entries, expected_revision=None))
        assert isinstance(caught.value, InvalidValue)
        assert isinstance(caught.value, UserError)
        assert isinstance(caught.value, PersistError)
    assert do(conversations.list_conversations()) == []


def test_what_everybody_else_sees(conversations: PersistConversationStore, do: Do, database_url: str) -> None:
    do(conversations.save(conversation("c", "a")))
    with Store.open(database_url) as look, look.read() as tx:
        record = tx.histories.records.get("c")
        assert record.head_id is not None
        messages: list[Any] = [entry.message for entry in tx.histories.entries.list(record.head_id)]
    assert messages == plain(turns("a"))


# Values that JSON or a database would change: they come back equal, or are refused.


EQUAL: dict[str, Any] = {
    "NUL": "a\x00b",
    "surrogate": "a\ud83d",
    "noncharacter": "\ufdd0\uffff",
    "integers": [0, -(2**63), 2**63 - 1, 2**64 - 1],
    "floats": [0.1, 1e300, 5e-324, 1e16, 1.0],
    "key order": {"z": 1, "a": {"y": 1, "b": 2}, "type": "x"},
    "empty": {"": "", "list": [], "object": {}},
    "words": ["true", "null", True, None],
    "bytes": b"\x00\xff",
    "bytes inside": {"deep": [{"raw": b"\x00\xff", "empty": b""}]},
    "infinity": {"n": [math.inf, -math.inf]},
}


def stored(conversations: PersistConversationStore, do: Do, messages: list[ModelMessage]) -> list[ModelMessage]:
    do(conversations.save(Conversation(conversation_id="c", messages=messages)))
    loaded = do(conversations.load("c"))
    assert loaded is not None
    return list(loaded.messages)


@pytest.mark.parametrize("value", EQUAL.values(), ids=EQUAL)
def test_a_value_comes_back_equal(conversations: PersistConversationStore, do: Do, value: Any) -> None:
    messages: list[ModelMessage] = [
        asked("begin"),
        called({"args": value}),
        returned(value, metadata={"about": value}),
        returned({"inside": [value]}),
    ]
    again = stored(conversations, do, messages)
    assert again == messages
    assert json.dumps(plain(again)) == json.dumps(plain(messages))


def test_text_of_people_and_models(conversations: PersistConversationStore, do: Do) -> None:
    messages: list[ModelMessage] = [asked("NUL \x00, half \ud83d, both \U0001f600"), answered("\x00\ud83d")]
    assert stored(conversations, do, messages) == messages


def test_what_is_not_a_number_stays_that(conversations: PersistConversationStore, do: Do) -> None:
    (message,) = stored(conversations, do, [returned({"n": [math.nan, 1.0]})])
    part: Any = message.parts[0]
    assert math.isnan(part.content["n"][0])
    assert part.content["n"][1] == 1.0


def test_bytes_below_keys_that_are_numbers_come_back(conversations: PersistConversationStore, do: Do) -> None:
    (message,) = stored(conversations, do, [returned({"a": {1: b"\x00", 2.5: [b"\xff", {3: math.inf}]}})])
    part: Any = message.parts[0]
    assert part.content == {"a": {"1": b"\x00", "2.5": [b"\xff", {"3": math.inf}]}}


def test_files_come_back_with_their_bytes(conversations: PersistConversationStore, do: Do) -> None:
    file = BinaryContent(data=bytes(range(256)), media_type="application/pdf")
    messages: list[ModelMessage] = [asked(["see", file]), returned(file)]
    again = stored(conversations, do, messages)
    assert plain(again) == plain(messages)
    part: Any = again[0].parts[0]
    assert part.content[1].data == file.data


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, {"n": 10**30}], ids=str)
def test_larger_integers_are_refused(conversations: PersistConversationStore, do: Do, value: Any) -> None:
    with pytest.raises(InvalidValue, match="64 bits") as caught:
        stored(conversations, do, [returned({"n": value})])
    assert isinstance(caught.value, UserError)
    assert do(conversations.load("c")) is None


def test_what_cannot_be_serialized_is_refused(conversations: PersistConversationStore, do: Do) -> None:
    circle: dict[str, Any] = {}
    circle["again"] = circle
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    for value in (object(), circle, deep):
        with pytest.raises(InvalidValue) as caught:
            stored(conversations, do, [returned({"n": value})])
        assert isinstance(caught.value, UserError)


class Model(BaseModel):
    content: Any


@pytest.mark.parametrize("alike", [*ALIKE, NONE], ids=repr)
@pytest.mark.parametrize("inside", [lambda value: value, lambda value: [{"a": value}], lambda value: Model(content=value)])
def test_two_keys_that_are_one_in_json_are_refused(
    conversations: PersistConversationStore, do: Do, alike: Any, inside: Callable[[Any], Any]
) -> None:
    for message in (returned(inside(alike)), returned("", metadata={"about": inside(alike)})):
        with pytest.raises(InvalidInput, match="one key in JSON"):
            stored(conversations, do, [asked("begin"), message])
    assert do(conversations.load("c")) is None


def test_a_key_that_is_a_number_alone_becomes_its_text(conversations: PersistConversationStore, do: Do) -> None:
    (message,) = stored(conversations, do, [returned({1: "a", "2": "b", None: "c", "null": "d"})])
    part: Any = message.parts[0]
    assert part.content == {"1": "a", "2": "b", "None": "c", "null": "d"}
