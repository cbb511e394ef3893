"""Both majors of the AI SDK: which one a recorder follows, and what each makes of the streams that they read differently."""

from collections.abc import Callable
from typing import Any

import pytest

from persist.chat.reducer import reduce
from persist.errors import InvalidValue, StreamProtocolError
from persist.settings import Settings
from tests.cases import each
from tests.contract.chat.scenes import approval, call, create, output, record, shown, step, text, turn

START = {"type": "start", "messageId": "m"}
REFUSED = {"type": "tool-input-error", "toolCallId": "c", "toolName": "w", "input": "raw", "errorText": "bad"}
ONLY_7: list[Any] = [
    {"type": "custom", "kind": "mock.note"},
    {"type": "reasoning-file", "mediaType": "image/png", "url": "data:,x"},
    {"type": "steering-message", "id": "s", "parts": [{"type": "text", "text": "Use Oslo.", "extra": 1}]},
]
BEGUN = [{"type": "tool-input-start", "toolCallId": "c", "toolName": "w"}, {"type": "tool-input-delta", "toolCallId": "c"}]


def parts(store: Any, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shown(store, session)[-1]["parts"]
    return found


@each(("ai_sdk", "key"), [(6, "rawInput"), (7, "input"), (None, "input")])
def test_a_refused_input(store: Any, ai_sdk: int | None, key: str) -> None:
    session = create(store)
    record(store, session, [START, REFUSED], ai_sdk=ai_sdk)
    assert parts(store, session) == [
        {"type": "tool-w", "toolCallId": "c", "state": "output-error", key: "raw", "errorText": "bad"}
    ]
    store.chat.sessions.delete(session)


def test_text_goes_on_after_the_step_in_7_alone(store: Any, session: str) -> None:
    chunks = [START, {"type": "start-step"}, *text("a")[:-1], {"type": "finish-step"}, {"type": "start-step"}, *text("b")[1:]]
    with store.record(session, ai_sdk=6) as recorder:
        recorder.feed_many(chunks[:-2])
        with pytest.raises(StreamProtocolError):
            recorder.feed(chunks[-2])
    record(store, session, [{**START, "messageId": "n"}, *chunks[1:]])
    assert parts(store, session) == [
        {"type": "step-start"},
        {"type": "text", "text": "ab", "state": "done"},
        {"type": "step-start"},
    ]


def test_what_only_7_has_is_counted_by_6(store: Any, session: str) -> None:
    with store.record(session, ai_sdk=6) as recorder:
        recorder.feed_many(
            [START, *text("a"), *ONLY_7, {"type": "reset-step"}, {"type": "tool-approval-response", "approvalId": 5}]
        )
        assert recorder.ignored == 5
    assert parts(store, session) == [{"type": "text", "text": "a", "state": "done"}]


def test_what_only_7_has_is_kept(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many(turn(*ONLY_7, id="m"))
        assert recorder.ignored == 0
    assert parts(store, session) == [{"type": "step-start"}, *ONLY_7]


def test_what_neither_knows_is_counted_and_what_is_the_applications_kept(store: Any, session: str) -> None:
    hologram: dict[str, Any] = {"type": "data-hologram", "data": {"depth": [1, None]}, "extra": {"key": "kept"}}
    with store.record(session) as recorder:
        recorder.feed_many(turn({"type": "hologram", "depth": 3}, hologram, {"type": "steering"}, id="m"))
        assert recorder.ignored == 2
    assert parts(store, session) == [{"type": "step-start"}, hologram]


def test_stored_parts_of_a_type_that_neither_knows_stay_when_the_message_goes_on(store: Any, session: str) -> None:
    hologram = {"type": "hologram", "depth": 3, "inner": [{"a": None}]}
    with store.begin() as tx:
        tx.chat.messages.append(session, id="m", role="assistant", parts=[hologram])
    record(store, session, [START, *text("more")])
    assert parts(store, session)[0] == hologram


@each("ai_sdk", [6, 7])
@each("pieces", [["[", "-", "1]"], ['{"a": [', " ", "-", "2", ",-", "3]}"], ["[-"], ["[+", "+", "1"]], ids=str)
def test_an_array_whose_first_item_is_no_value_yet(store: Any, other: Any, ai_sdk: Any, pieces: list[str]) -> None:
    """Readers join deltas without knowing the major that was recorded; they see its reading all the same."""
    session = create(store)
    chunks = [START, BEGUN[0], *({**BEGUN[1], "inputTextDelta": piece} for piece in pieces)]
    with store.record(session, ai_sdk=ai_sdk) as recorder:
        for count, chunk in enumerate(chunks, start=1):
            recorder.feed(chunk)
            assert not (count > 1) or shown(other, session) == [reduce(chunks[:count], ai_sdk=ai_sdk)]
    assert shown(store, session) == [reduce(chunks, ai_sdk=ai_sdk)]
    store.chat.sessions.delete(session)


def test_an_answer_in_the_stream_closes_the_approval(store: Any, session: str) -> None:
    asked = {**approval("a1", "c"), "reason": "It deletes.", "isAutomatic": True}
    record(store, session, [START, *step(call("bash", "c", {})), asked])
    assert parts(store, session)[-1]["approval"] == {"id": "a1", "requestReason": "It deletes.", "isAutomatic": True}
    record(store, session, [START, {"type": "tool-approval-response", "approvalId": "a1", "approved": False, "reason": "policy"}])
    answered = {"id": "a1", "requestReason": "It deletes.", "isAutomatic": True, "approved": False, "reason": "policy"}
    assert parts(store, session)[-1]["state"] == "approval-responded"
    assert parts(store, session)[-1]["approval"] == answered
    with store.begin() as tx:
        assert tx.chat.messages.answer_approval(session, "a1", approved=True) is False


def test_an_answer_by_verb_keeps_what_the_request_said(store: Any, session: str) -> None:
    record(store, session, [START, *step(call("bash", "c", {})), {**approval("a1", "c"), "reason": "It deletes."}])
    with store.begin() as tx:
        assert tx.chat.messages.answer_approval(session, "a1", approved=True, reason="fine") is True
    assert parts(store, session)[-1]["approval"] == {
        "id": "a1",
        "requestReason": "It deletes.",
        "approved": True,
        "reason": "fine",
    }


def test_an_answer_finds_the_approval_of_an_earlier_message(store: Any, session: str) -> None:
    record(store, session, turn(call("bash", "c", {}), approval("a1", "c"), id="first"))
    answer = {"type": "tool-approval-response", "approvalId": "a1", "approved": True}
    record(
        store, session, [{"type": "start", "messageId": "second"}, *text("so"), answer, output("c", "done"), {"type": "finish"}]
    )
    first, second = shown(store, session)
    assert (first["parts"][-1]["state"], first["parts"][-1]["output"]) == ("output-available", "done")
    assert first["parts"][-1]["approval"] == {"id": "a1", "approved": True}
    assert len(second["parts"]) == 1


def test_an_answer_to_nothing_is_refused(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([START, call("bash", "c", {}), approval("a1", "c")])
        with pytest.raises(StreamProtocolError):
            recorder.feed({"type": "tool-approval-response", "approvalId": "a2", "approved": True})
    assert parts(store, session)[-1]["state"] == "approval-requested"


@each("ai_sdk", [5, 8, "7", True, 7.5, "v7"])
def test_other_majors_are_refused(store: Any, ai_sdk: Any) -> None:
    session = create(store)
    with pytest.raises(InvalidValue) as refused:
        store.record(session, ai_sdk=ai_sdk)
    assert refused.value.path == "ai_sdk"
    with pytest.raises(InvalidValue) as refused:
        reduce([], ai_sdk=ai_sdk)
    assert refused.value.path == "ai_sdk"


def test_the_setting_chooses_where_the_call_does_not(
    open_store: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, session: str
) -> None:
    monkeypatch.setenv("PERSIST_AI_SDK", "6")
    store = open_store()
    record(store, session, [START, REFUSED])
    assert "rawInput" in parts(store, session)[0]
    record(store, session, [{**START, "messageId": "n"}, REFUSED], ai_sdk=7)
    assert "input" in parts(store, session)[0]


def test_a_setting_that_is_no_major_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSIST_AI_SDK", "5")
    with pytest.raises(InvalidValue) as refused:
        Settings()
    assert refused.value.path == "PERSIST_AI_SDK"
