"""Objects come back with their keys as they were written, on both databases and through every way of reading."""

import json
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.maintenance import copy

INPUT = {"zeta": 1, "b": {"yy": [{"type": "z", "c": 1, "a": 2}], "x": None}, "a": "1"}
PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "Hello, \x00 \ud83d", "state": "done"},
    {"state": "done", "type": "text", "text": "in another order"},
    {
        "type": "tool-search",
        "toolCallId": "call_1",
        "state": "output-available",
        "input": INPUT,
        "output": {"rows": [INPUT, {"n": 2, "m": 1}], "count": 2},
    },
    {"type": "data-chart", "data": {"series": [3, 1, 2], "axis": "y", "title": "t"}},
]
METADATA = {"b": 1, "type": "x", "a": {"d": 1, "c": 2}}


def text(value: Any) -> str:
    return json.dumps(value)


def test_parts_and_metadata(store: Any) -> None:
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="a", model={"providerID": "p", "modelID": "m"}, metadata=METADATA).id
        id = tx.chat.messages.append(session, role="assistant", parts=PARTS, metadata=METADATA).id
        last = tx.chat.messages.append(session, role="user", parts=PARTS[:1]).id
    found = store.chat.messages.list(session)
    assert [text(message["parts"]) for message in found] == [text(PARTS), text(PARTS[:1])]
    assert text(found[0]["metadata"]) == text(METADATA)
    assert text(json.loads(store.chat.messages.list_json(session))) == text(found)
    assert text(store.chat.messages.list(session, limit=1)) == text(found[1:])
    assert text(store.chat.messages.get(id)["parts"]) == text(PARTS)
    assert text(store.chat.sessions.get(session).metadata) == text(METADATA)
    fork = store.chat.sessions.fork(session, last).id
    assert [text(message["parts"]) for message in store.chat.messages.list(fork)] == [text(PARTS), text(PARTS[:1])]


def test_a_streamed_tool_call(store: Any) -> None:
    session = store.chat.sessions.create(agent="a", model={"providerID": "p", "modelID": "m"}).id
    recorder = store.record(session)
    with recorder:
        recorder.feed({"type": "start"})
        recorder.feed({"type": "tool-input-available", "toolCallId": "c", "toolName": "search", "input": INPUT})
        recorder.feed({"type": "tool-output-available", "toolCallId": "c", "output": {"z": INPUT, "y": 1}})
        recorder.feed({"type": "finish"})
    (part,) = store.chat.messages.list(session)[0]["parts"]
    assert (text(part["input"]), text(part["output"])) == (text(INPUT), text({"z": INPUT, "y": 1}))
    assert next(iter(part)) == "type"


def test_contexts_contents_and_memories(store: Any) -> None:
    with store.begin() as tx:
        run = tx.workflows.runs.create("w", trigger_id="t", current_phase="p", context=INPUT).id
        tx.conversations.messages.put({"id": "m", "created_at": 1.0, "role": "user", "content": INPUT, "node_metadata": METADATA})
        tx.checkpoints.memories.put(("a",), "k", INPUT)
    assert text(store.workflows.runs.get(run).context) == text(INPUT)
    message = store.conversations.messages.get("m")
    assert (text(message.content), text(message.node_metadata)) == (text(INPUT), text(METADATA))
    assert text(store.checkpoints.memories.get(("a",), "k").value) == text(INPUT)


@pytest.mark.parametrize("way", ["to a file", "to a server"])
def test_a_copy_keeps_the_order(way: str, tmp_path: Path, postgres_url: str) -> None:
    file = f"sqlite:///{tmp_path / 'a.db'}"
    source, target = (postgres_url, file) if way == "to a file" else (file, postgres_url)
    with Store.open(source) as store, store.begin() as tx:
        session = tx.chat.sessions.create(agent="a", model={"providerID": "p", "modelID": "m"}).id
        tx.chat.messages.append(session, role="assistant", parts=PARTS)
    with Store.open(source) as one, Store.open(target) as other:
        copy(one, other)
    with Store.open(target) as store, store.read() as tx:
        assert text(tx.chat.messages.list(session)[0]["parts"]) == text(PARTS)
