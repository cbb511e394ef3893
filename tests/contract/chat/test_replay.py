"""Replaying a stored message, whoever recorded it and whether or not it is still being recorded."""

from collections.abc import Callable
from typing import Any

import pytest

from persist.chat.reducer import reduce
from persist.errors import InvalidValue, NotFound
from tests.cases import each
from tests.contract.chat.scenes import VECTORS, approval, call, create, output, record, say, shown, step, text, turn


def replayed(store: Any, id: str, **options: Any) -> list[dict[str, Any]]:
    with store.read() as tx:
        found: list[dict[str, Any]] = tx.chat.messages.replay(id, **options)
    return found


def test_a_message_is_rebuilt_under_its_id(store: Any, session: str) -> None:
    chunks = turn(*text("a", "b"), call("bash", "c", {"cmd": "ls"}), approval("ap", "c"), output("c", [1]), id="m")
    record(store, session, chunks, model={"model_id": "m"}, system_prompt="Be brief.")
    assert [reduce(replayed(store, "m"))] == shown(store, session)
    assert replayed(store, "m")[-1] == {"type": "finish"}


def test_a_running_message_has_what_it_has_and_no_end(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        for count, chunk in enumerate(turn(*text("a", "b"), call("bash", "c", {}), id="m"), start=1):
            recorder.feed(chunk)
            if count > 1 and chunk["type"] != "finish":
                assert reduce(replayed(other, "m")) == shown(other, session)[0]
                assert replayed(other, "m")[-1]["type"] not in ("finish", "finish-step")
        assert replayed(other, "m")[-1] == {"type": "finish"}


def test_an_earlier_message_of_a_running_turn_has_its_end(store: Any, session: str) -> None:
    record(store, session, turn(*text("one"), id="m"))
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start", "messageId": "n"}, *text("two")])
        assert replayed(store, "m")[-1] == {"type": "finish"}
        assert replayed(store, "n")[-1]["type"] == "text-end"


def test_a_discarded_attempt_is_not_replayed(store: Any, session: str) -> None:
    chunks = [{"type": "start", "messageId": "m"}, *step(*text("bad"), {"type": "reset-step"}, *text("good"))]
    record(store, session, chunks)
    assert [chunk["delta"] for chunk in replayed(store, "m") if chunk["type"] == "text-delta"] == ["good"]


@each("chosen", [[6, "streamText"], [7, "streamText"], [7, "approval"]], ids=str)
def test_vectors_are_rebuilt_from_the_store(store: Any, chosen: list[Any]) -> None:
    major, name = chosen
    odd = ("approved", "refused")  # 6 has no chunk for their answers
    vectors = [one for one in VECTORS if one["ai_sdk"] == major and one["name"].startswith(name) and major in one["valid"]]
    for vector in [one for one in vectors if not one.get("initial") and not one["name"].endswith(odd)][:12]:
        session = create(store)
        id = record(store, session, vector["chunks"], ai_sdk=major)
        assert [reduce(replayed(store, str(id), ai_sdk=major), ai_sdk=major)] == shown(store, session), vector["name"]
        with store.begin() as tx:
            tx.chat.sessions.delete(session)


def test_the_setting_chooses_the_major(open_store: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, session: str) -> None:
    store = open_store()
    record(store, session, turn({"type": "custom", "kind": "a.b"}, id="m"))
    assert "custom" in [chunk["type"] for chunk in replayed(store, "m")]
    assert "custom" not in [chunk["type"] for chunk in replayed(store, "m", ai_sdk=6)]
    monkeypatch.setenv("PERSIST_AI_SDK", "6")
    assert "custom" not in [chunk["type"] for chunk in replayed(open_store(), "m")]


def test_nobody_elses_message_is_replayed(store: Any, session: str) -> None:
    with pytest.raises(InvalidValue):
        replayed(store, say(store, session, "hi"))
    with pytest.raises(NotFound):
        replayed(store, "nobody")
    for bad in (5, "7", True):
        with pytest.raises(InvalidValue):
            replayed(store, "nobody", ai_sdk=bad)
