"""Values that JSON or a database would change: they come back equal, or are refused."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.conversation import Conversation
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import BinaryContent, ModelMessage

from persist.errors import InvalidValue
from persist.integrations.pydantic_ai import InvalidInput, PersistConversationStore
from tests.integrations.alike_keys import ALIKE, NONE
from tests.integrations.pydantic_ai.conftest import Do
from tests.integrations.pydantic_ai.scenes import answered, asked, called, plain, returned

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
