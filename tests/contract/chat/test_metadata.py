"""Message metadata: what the stream says, merged, below what the recorder itself knows."""

import hashlib
from typing import Any

import pytest

from persist.errors import InvalidValue
from tests.cases import each
from tests.contract.chat.scenes import create, record, say, shown, text
from tests.contract.conftest import Raw

M1, M2 = {"provider_id": "a", "model_id": "one"}, {"provider_id": "b", "model_id": "two"}


def merge(payload: Any) -> dict[str, Any]:
    return {"type": "message-metadata", "messageMetadata": payload}


def metadata_of(store: Any, session: str) -> Any:
    return shown(store, session)[-1].get("metadata")


def test_the_recorder_owns_model_agent_and_prompt_digest(store: Any, session: str) -> None:
    chunks = [
        {"type": "start", "messageMetadata": {"model": M2, "agent": "other", "system_prompt_digest": "x", "mine": 1}},
        *text("x"),
        merge({"model": {"model_id": "later"}, "agent": None, "usage": {"input": 7}}),
        {"type": "finish", "messageMetadata": {"system_prompt_digest": None}},
    ]
    record(store, session, chunks, model=M1, agent="plan", system_prompt="Be brief.")
    assert metadata_of(store, session) == {
        "model": M1,
        "agent": "plan",
        "system_prompt_digest": hashlib.sha256(b"Be brief.").hexdigest(),
        "mine": 1,
        "usage": {"input": 7},
    }


def test_what_the_recorder_does_not_own_is_the_streams(store: Any, session: str) -> None:
    record(store, session, [*text("x"), merge({"model": M2, "agent": "plan"})])
    assert metadata_of(store, session) == {"model": M2, "agent": "plan"}


def test_the_agent_is_said_only_when_it_is_not_the_sessions(store: Any, session: str) -> None:
    record(store, session, text("x"), agent="build")
    assert metadata_of(store, session) is None
    record(store, session, text("x"), agent="plan")
    assert metadata_of(store, session) == {"agent": "plan"}


def test_given_metadata_lies_below_the_streams(store: Any, session: str) -> None:
    record(store, session, [*text("x"), merge({"a": 2})], metadata={"a": 1, "b": {"c": 1}, "snapshot_id": "s"})
    assert metadata_of(store, session) == {"a": 2, "b": {"c": 1}, "snapshot_id": "s"}


def test_objects_merge_and_everything_else_replaces(store: Any, session: str) -> None:
    payloads = [{"a": {"b": 1, "c": [1, 2]}, "n": 1}, {"a": {"c": [3]}, "n": None}, None, {"a": {"d": {"e": 1}}}, {"n": {"o": 1}}]
    record(store, session, [*text("x"), *map(merge, payloads)])
    assert metadata_of(store, session) == {"a": {"b": 1, "c": [3], "d": {"e": 1}}, "n": {"o": 1}}


def test_keys_that_would_reach_a_prototype_are_not_merged(store: Any, session: str) -> None:
    first, second = {"a": {"b": 1}}, {"__proto__": {"x": 1}, "constructor": 1, "a": {"prototype": 1, "c": 2}}
    record(store, session, [*text("x"), merge(first), merge(second)])
    assert metadata_of(store, session) == {"a": {"b": 1, "c": 2}}


def test_metadata_alone_makes_no_message_before_the_finish(store: Any, raw: Raw, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed({"type": "start", "messageId": "m", "messageMetadata": {"a": 1}})
        recorder.feed(merge({"b": 2}))
        assert raw.count("chat_messages") == 0
        recorder.feed({"type": "finish", "messageMetadata": {"c": 3}})
        assert raw.count("chat_messages") == 1
    assert shown(store, session) == [{"id": "m", "role": "assistant", "parts": [], "metadata": {"a": 1, "b": 2, "c": 3}}]


def test_keys_that_others_wrote_meanwhile_survive(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start", "messageId": "m"}, {"type": "start-step"}])
        with store.begin() as tx:
            tx.chat.messages.update_metadata("m", {"rating": 5})
        recorder.feed(merge({"a": 1}))
        recorder.feed({"type": "finish"})
    assert metadata_of(store, session) == {"rating": 5, "a": 1}


@each("payload", [1, "text", [1], True])
def test_metadata_is_an_object(store: Any, payload: Any) -> None:
    session = create(store)
    with store.record(session) as recorder:
        for kind in ("start", "message-metadata", "finish"):
            with pytest.raises(InvalidValue):
                recorder.feed({"type": kind, "messageMetadata": payload})
    assert shown(store, session) == []


@each("key", ["queued_at", "queue_enqueued_at", "queue_canceled_at", "hidden_at"])
def test_the_keys_of_queue_and_rewind_are_not_for_patches(store: Any, key: str) -> None:
    session = create(store)
    message = say(store, session, "hi")
    with store.begin() as tx, pytest.raises(InvalidValue):
        tx.chat.messages.update_metadata(message, {key: 1})
    assert len(shown(store, session)) == 1


def test_a_model_given_to_the_recorder_becomes_the_sessions(store: Any, raw: Raw) -> None:
    session = create(store)
    record(store, session, text("x"), model=M1)
    assert raw.json("SELECT model_json FROM chat_sessions") == M1
