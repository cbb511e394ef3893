"""Values that databases refuse are kept, and keys that they refuse are refused before anything is written."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item
from langgraph.types import Send

from persist.errors import InvalidValue
from persist.integrations.langgraph import PersistSaver
from tests.integrations.langgraph.scenes import Reversed, config, messages, put, seen

Call = Callable[..., Any]
HALF = "\ud83d"
LONG_AGO = datetime(2026, 1, 2, tzinfo=UTC)


# ---------------------------------------------------------------- values


class Counting(JsonPlusSerializer):
    """Notes what it deserializes."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[bytes] = []

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        self.read.append(data[1])
        return super().loads_typed(data)


def test_each_value_is_deserialized_once_for_a_whole_history(call: Call, store: Any) -> None:
    saver, said, heads = PersistSaver(store, serde=Counting()), messages(60), 45
    state = {"same": {"k": "x" * 600}}
    for number in range(1, heads + 1):
        put(
            call,
            saver,
            f"{number:02}",
            {"messages": said[: number + 15], "state": state},
            versions={"messages": f"{number}", "state": "1"},
        )
    saver.serde = counted = Counting()
    found = call(saver.list, config())
    assert len(counted.read) == len(said) + 1 + heads
    whole = [seen(call(saver.get_tuple, config(id=f"{number:02}"))) for number in range(heads, 0, -1)]
    assert [seen(one) for one in found] == whole
    for channel in ("messages", "state"):  # each checkpoint has a list and a dictionary of its own
        found[0].checkpoint["channel_values"][channel].clear()
    assert [seen(one) for one in found[1:]] == whole[1:]


def test_equal_elements_of_a_list_are_objects_of_their_own_in_a_history(call: Call, saver: PersistSaver) -> None:
    same = {"k": "x" * 600}
    for id in ("1", "2"):
        put(call, saver, id, {"list": [same, 1, same, None, 1, None]})
    for one in call(saver.list, config()):
        value = one.checkpoint["channel_values"]["list"]
        assert value == [same, 1, same, None, 1, None]
        assert value[0] is not value[2]


def test_nul_is_kept_in_values_writes_and_metadata(call: Call, saver: PersistSaver) -> None:
    said = "before\x00after"
    put(call, saver, "1", {"text": said, "list": [said] * 300, "bytes": said.encode()}, note=said, nested={"a": [said]})
    call(saver.put_writes, config(id="1"), [("text", said)], "task")
    found = call(saver.get_tuple, config())
    assert found.checkpoint["channel_values"] == {"text": said, "list": [said] * 300, "bytes": said.encode()}
    assert found.metadata["note"] == said
    assert found.metadata["nested"] == {"a": [said]}
    assert found.pending_writes == [("task", "text", said)]
    assert [one.metadata["note"] for one in call(saver.list, config(), filter={"note": said})] == [said]


def test_a_lone_half_in_metadata_is_kept(call: Call, saver: PersistSaver) -> None:
    put(call, saver, "1", note=HALF, nested={HALF: HALF})
    assert call(saver.get_tuple, config()).metadata["nested"] == {HALF: HALF}
    assert len(call(saver.list, config(), filter={"note": HALF})) == 1


class Kept(NamedTuple):
    """A tuple with names."""

    text: str


@dataclass
class Told:
    """Fields, of which one is private."""

    _text: str


HOLDERS: dict[str, Callable[[str], Any]] = {
    "text": lambda text: text,
    "list": lambda text: [*messages(9), {"content": text}],
    "message": HumanMessage,
    "set": lambda text: {text},
    "tuple with names": lambda text: (Kept(text),),
    "dataclass": Told,
    "send": lambda text: Send("node", {"text": [text]}),
    "path": Path,
    "pattern": lambda text: re.compile(re.escape(text)),
    "memory": lambda text: Item(value={"text": text}, key="k", namespace=(), created_at=LONG_AGO, updated_at=LONG_AGO),
    "delta": _DeltaSnapshot,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_lone_half_in_a_value_is_refused_before_anything_is_written(call: Call, saver: PersistSaver, holder: str) -> None:
    value = HOLDERS[holder](f"is it {HALF}?")
    with pytest.raises(ValueError, match=r"channel.*surrogates"):
        put(call, saver, "1", {"other": 1, "channel": value})
    with pytest.raises(ValueError, match=r"channel.*surrogates"):
        call(saver.put_writes, config(id="1"), [("other", 1), ("channel", value)], "task")
    assert call(saver.list, None) == []
    whole = HOLDERS[holder]("is it ??")
    put(call, saver, "1", {"channel": whole})
    assert call(saver.get_tuple, config()).checkpoint["channel_values"].keys() == {"channel"}


def test_a_lone_half_is_refused_where_values_are_encrypted(call: Call, store: Any) -> None:
    saver = PersistSaver(store, serde=EncryptedSerializer(Reversed(), JsonPlusSerializer()))
    with pytest.raises(ValueError, match=r"channel.*surrogates"):
        put(call, saver, "1", {"channel": [HALF]})
    put(call, saver, "1", {"channel": ["?"]})
    assert call(saver.get_tuple, config()).checkpoint["channel_values"] == {"channel": ["?"]}


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), 2**64 - 1, -(2**63), 1e300, -0.0], ids=repr)
def test_numbers_are_kept(call: Call, saver: PersistSaver, number: float) -> None:
    put(call, saver, "1", {"number": number}, number=number)
    found = call(saver.get_tuple, config())
    assert repr(found.checkpoint["channel_values"]["number"]) == repr(number)
    assert found.metadata["number"] == number


def test_nan_is_kept(call: Call, saver: PersistSaver) -> None:
    put(call, saver, "1", {"number": float("nan")}, number=float("nan"))
    found = call(saver.get_tuple, config())
    assert repr([found.checkpoint["channel_values"]["number"], found.metadata["number"]]) == "[nan, nan]"


def test_metadata_that_is_no_json_is_kept_and_filtered_by(call: Call, saver: PersistSaver) -> None:
    put(call, saver, "1", odd={1, 2}, plain="x")
    assert call(saver.get_tuple, config()).metadata["odd"] == {1, 2}
    assert len(call(saver.list, config(), filter={"odd": {1, 2}, "plain": "x"})) == 1
    assert call(saver.list, config(), filter={"odd": {1, 3}}) == []


@pytest.mark.parametrize(
    ("thread", "namespace"), [("a\x00", ""), (HALF, ""), ("t", "a\x00"), ("t", HALF)], ids=["nul", "half", "nul-ns", "half-ns"]
)
def test_a_key_that_databases_refuse_is_refused(call: Call, saver: PersistSaver, thread: str, namespace: str) -> None:
    with pytest.raises(ValueError, match="NUL or a lone surrogate half"):
        put(call, saver, "1", {"x": 1}, thread=thread, namespace=namespace)
    assert call(saver.list, None) == []


def test_a_channel_that_databases_refuse_is_refused_before_anything_is_written(call: Call, saver: PersistSaver) -> None:
    with pytest.raises(InvalidValue):
        put(call, saver, "1", {"x": 1, "a\x00": 2})
    with pytest.raises(InvalidValue):
        call(saver.put_writes, config(id="1"), [("x", 1), ("a\x00", 2)], "task")
    assert call(saver.list, None) == []


def test_what_cannot_be_serialized_is_the_frameworks_error_and_nothing_is_written(call: Call, saver: PersistSaver) -> None:
    for attempt in (
        lambda: put(call, saver, "1", {"x": 1, "y": object()}),
        lambda: put(call, saver, "1", {"x": 1, "y": {HALF: 1}}),
        lambda: put(call, saver, "1", {"x": [*messages(9), object()]}),
        lambda: call(saver.put_writes, config(id="1"), [("x", 1), ("y", object())], "task"),
    ):
        with pytest.raises(ormsgpack.MsgpackEncodeError):
            attempt()
    assert call(saver.list, None) == []


def test_a_class_that_is_not_allowed_comes_back_as_its_data(call: Call, store: Any) -> None:
    saver = PersistSaver(store, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    put(call, saver, "1", {"said": [HumanMessage("hi"), Unknown("x" * 600)]})
    (said, other) = call(saver.get_tuple, config()).checkpoint["channel_values"]["said"]
    assert said == HumanMessage("hi")
    assert other == {"text": "x" * 600}
    wider = saver.with_allowlist([(Unknown.__module__, "Unknown")])
    assert call(wider.get_tuple, config()).checkpoint["channel_values"]["said"][1] == Unknown("x" * 600)


class Unknown:
    """A class that no allowlist names."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown) and other.text == self.text

    __hash__ = None  # type: ignore[assignment]  # it is compared only

    def _asdict(self) -> dict[str, str]:
        return {"text": self.text}
