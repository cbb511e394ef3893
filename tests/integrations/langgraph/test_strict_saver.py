"""Wherever a checkpoint keeps something serialized, a saver reads it as data; graphs go on with what they allow."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import Annotated, Any

import ormsgpack
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from persist import Store
from persist.errors import StoreCorrupt
from persist.framework_state.checkpoints.schemas import Blob, Write
from persist.integrations.langgraph import PersistSaver, PersistStore, StrictSerializer
from tests.integrations.langgraph.scenes import MODEL, ONE, Reversed, checkpoint, config, lc, metadata, stored

Call = Callable[..., Any]


def plant(database_url: str, *, value: Any = None, head: Blob | None = None, write: Blob | None = None, **more: Any) -> None:
    """Rows as somebody who writes to the database could leave them: a checkpoint, and one below it."""
    plain = Blob(*JsonPlusSerializer().dumps_typed(({"v": 4, "id": "1", "ts": "", "versions_seen": {}},)))
    with Store.open(database_url) as other, other.begin() as tx:
        states = tx.checkpoints.states
        values = {"said": ("1", value)} if value is not None else {}
        states.put("t", "1", head=head or plain, versions=more.get("versions") or {"said": "1"}, values=values)
        if write is not None:
            states.put_writes("t", "1", [Write(0, "said", write)], task_id="task")
        states.put("t", "2", head=plain, parent_id="1", versions={}, partial=["said"])


@pytest.mark.parametrize("place", ["value", "piece", "head", "metadata", "write"])
def test_an_attack_is_data_wherever_it_stands(call: Call, store: Any, database_url: str, place: str, tmp_path: Path) -> None:
    command = f"touch {tmp_path / 'made'}"
    attack = Blob(*stored(ONE, "os", "system", command))
    head = {"v": 4, "id": "1", "ts": "", "versions_seen": {}}
    if place == "value":
        plant(database_url, value=attack)
    elif place == "piece":
        plant(database_url, value=[attack, attack])
    elif place == "write":
        plant(database_url, write=attack)
    else:
        where = ormsgpack.Ext(ONE, ormsgpack.packb(("os", "system", command)))
        parts = [{**head, "ts": where}] if place == "head" else [head, {"odd": where}]
        plant(database_url, head=Blob("msgpack", ormsgpack.packb(parts)))
    saver = PersistSaver(store)
    found = call(saver.get_tuple, config(id="1"))
    call(saver.list, None)
    call(saver.list, config(), filter={"odd": 1})
    made = call(saver.get_delta_channel_history, config=config(id="2"), channels=["said"])["said"]
    assert not (tmp_path / "made").exists()
    values = found.checkpoint["channel_values"]
    read = {"head": found.checkpoint["ts"], "metadata": found.metadata.get("odd"), "value": values.get("said")}
    read |= {"piece": (values.get("said") or [None])[-1], "write": [value for _, _, value in made["writes"]][-1:]}
    assert read[place] == ([command] if place == "write" else command)


def test_who_asks_for_the_old_reader_has_it(store: Any, database_url: str, tmp_path: Path, call: Call) -> None:
    plant(database_url, value=Blob(*stored(ONE, "pathlib", "Path", "a")))
    old = PersistSaver(store, serde=JsonPlusSerializer())
    assert call(old.get_tuple, config(id="1")).checkpoint["channel_values"] == {"said": Path("a")}
    with pytest.raises(TypeError, match="serde"):
        PersistSaver(store, serde=JsonPlusSerializer(), allow=[Asked])


BROKEN: dict[str, dict[str, Any]] = {
    "pickle": {"value": Blob("pickle", b"x")},
    "deep": {"value": [Blob("msgpack", b"\x91" * 9_000), Blob("msgpack", b"\xc0")]},
    "a head that is a number": {"head": Blob("msgpack", b"\x01")},
    "an empty head": {"head": Blob("msgpack", b"\x90")},
    "a head of numbers": {"head": Blob("msgpack", b"\x92\x01\x01")},
    "no head": {"head": Blob("null", b"")},
    "a version that is no JSON": {"versions": {"said": "["}},
    "a version that is a list": {"versions": {"said": "[]"}},
    "a version that is nothing": {"versions": {"said": "null"}},
    "a version that is an object": {"versions": {"said": '{"of": {}}'}},
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_no_checkpoint_is_said(call: Call, store: Any, database_url: str, broken: str) -> None:
    plant(database_url, **BROKEN[broken])
    with pytest.raises(StoreCorrupt):
        call(PersistSaver(store).get_tuple, config(id="1"))


def test_items_are_json_and_nothing_else(call: Call, items: PersistStore) -> None:
    value = {"json": lc(2, "os", "system", args=["true"]), "secret": {"lc": 1, "type": "secret", "id": ["PATH"]}}
    call(items.put, ("a",), "k", value)
    assert call(items.get, ("a",), "k").value == value
    assert call(items.search, ("a",))[0].value == value


@dataclass
class Asked:
    """A question that a graph of the host asks."""

    text: str


class State(TypedDict):
    """What the graph keeps."""

    asked: Annotated[list[Asked], add]
    answers: Annotated[list[str], add]


def graph(saver: PersistSaver) -> Any:
    """It sends each question to a node, which asks a person."""

    def ask(question: Asked) -> dict[str, Any]:
        said = interrupt(question)
        return {"answers": [f"{type(question).__name__} {said}"]}  # where it is not allowed, a dict

    builder: Any = StateGraph(State)  # nothing of its types knows what is sent to a node
    builder.add_node("plan", lambda state: {"asked": [Asked("one?"), Asked("two?")]})
    builder.add_node("ask", ask)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda state: [Send("ask", question) for question in state["asked"]], ["ask"])
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize(
    ("allow", "kind"), [([Asked], Asked), ([f"{__name__}.Asked"], Asked), ([], dict)], ids=["class", "name", "none"]
)
def test_a_graph_goes_on_with_the_types_that_it_allows(database_url: str, allow: Any, kind: type) -> None:
    thread: Any = {"configurable": {"thread_id": "t"}}
    with Store.open(database_url) as store:
        graph(PersistSaver(store, allow=allow)).invoke({"asked": [], "answers": []}, thread)
    with Store.open(database_url) as store:
        again = graph(PersistSaver(store, allow=allow))
        waiting = again.get_state(thread)
        assert [type(one.value) for one in waiting.interrupts] == [kind, kind]
        done = again.invoke(Command(resume={one.id: f"{number}" for number, one in enumerate(waiting.interrupts)}), thread)
        assert done["answers"] == [f"{kind.__name__} 0", f"{kind.__name__} 1"]
        assert [type(one) for one in done["asked"]] == [kind, kind]


def test_what_a_graph_allows_when_it_is_compiled_is_allowed(call: Call, store: Any, caplog: pytest.LogCaptureFixture) -> None:
    """LangGraph does so by itself where LANGGRAPH_STRICT_MSGPACK is set."""
    saver = PersistSaver(store)
    call(saver.put, config(), checkpoint("1", {"x": [Asked("a" * 600), HumanMessage("hi")]}), metadata(), {"x": 1})
    wider = saver.with_allowlist([(__name__, "Asked")])
    assert call(wider.get_tuple, config()).checkpoint["channel_values"]["x"] == [Asked("a" * 600), HumanMessage("hi")]
    with caplog.at_level(logging.WARNING, "persist"):
        for _ in range(2):
            assert call(saver.get_tuple, config()).checkpoint["channel_values"]["x"][0] == {"text": "a" * 600}
    assert len([record for record in caplog.records if f"{__name__}.Asked" in record.getMessage()]) == 1


def test_an_attack_cannot_name_a_method_of_a_type_that_is_allowed(call: Call, store: Any, database_url: str) -> None:
    plant(database_url, value=Blob(*stored(MODEL, __name__, "Asked", {"text": "x", "more": 1}, "made_up")))
    saver = PersistSaver(store, allow=[Asked])
    assert call(saver.get_tuple, config(id="1")).checkpoint["channel_values"] == {"said": {"text": "x", "more": 1}}


def test_the_strict_reader_stands_inside_an_encrypting_one(call: Call, store: Any, database_url: str, tmp_path: Path) -> None:
    saver = PersistSaver(store, serde=EncryptedSerializer(Reversed(), StrictSerializer([Asked])))
    call(saver.put, config(), checkpoint("0", {"x": [Asked("?"), 1]}), metadata(), {"x": 1})
    assert call(saver.get_tuple, config()).checkpoint["channel_values"]["x"] == [Asked("?"), 1]
    plant(database_url, value=Blob(*stored(ONE, "os", "system", f"touch {tmp_path / 'made'}")))  # as nobody encrypted it
    assert call(saver.get_tuple, config(id="1")).checkpoint["channel_values"] == {"said": f"touch {tmp_path / 'made'}"}
    assert not (tmp_path / "made").exists()
