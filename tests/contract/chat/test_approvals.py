"""Approvals, and results that arrive in a later stream than their call."""

from typing import Any

import pytest

from persist.errors import InvalidValue, NotFound, StreamProtocolError
from tests.cases import each
from tests.contract.chat.scenes import approval, call, create, output, record, say, shown, step, text, turn
from tests.contract.conftest import Raw


def answer(store: Any, session: str, id: str, approved: bool = True, **options: Any) -> bool:
    with store.begin() as tx:
        return bool(tx.chat.messages.answer_approval(session, id, approved=approved, **options))


def parts(store: Any, session: str, at: int = -1) -> list[Any]:
    return list(shown(store, session)[at]["parts"])


def test_only_an_open_approval_is_answered_and_once(store: Any, session: str) -> None:
    """(c) 18"""
    record(store, session, turn(call("bash", "c", {"x": 1}), approval("ap", "c"), id="m"))
    assert not answer(store, session, "another")
    assert not answer(store, create(store), "ap")
    assert parts(store, session)[1]["state"] == "approval-requested"
    assert answer(store, session, "ap", False, reason="too risky")
    assert parts(store, session)[1] == {
        "type": "tool-bash",
        "toolCallId": "c",
        "state": "approval-responded",
        "input": {"x": 1},
        "approval": {"id": "ap", "approved": False, "reason": "too risky"},
    }
    assert not answer(store, session, "ap", True)
    assert parts(store, session)[1]["approval"]["approved"] is False


def test_an_answer_keeps_what_the_request_said(store: Any, raw: Raw, session: str) -> None:
    record(store, session, turn(call("bash", "c"), {**approval("ap", "c"), "signature": "s", "approvalDescriptor": {"d": 1}}))
    assert answer(store, session, "ap")
    assert parts(store, session)[1]["approval"] == {"id": "ap", "signature": "s", "descriptor": {"d": 1}, "approved": True}
    assert raw.value("SELECT tool_state FROM chat_parts WHERE tool_call_id = 'c'") == "approval-responded"


def test_a_resumed_stream_goes_on_in_the_same_message(store: Any, raw: Raw, session: str) -> None:
    """(c) 18"""
    record(store, session, turn(*text("let me see"), call("bash", "c", {}), approval("ap", "c"), id="m"))
    assert answer(store, session, "ap")
    resumed = [{"type": "start", "messageId": "m"}, output("c", "done"), *step(*text("there")), {"type": "finish"}]
    assert record(store, session, resumed) == "m"
    (message,) = shown(store, session)
    assert [part["type"] for part in message["parts"]] == ["step-start", "text", "tool-bash", "step-start", "text"]
    assert message["parts"][2]["output"] == "done"
    assert raw.rows('SELECT p."index" FROM chat_parts p ORDER BY p."index"') == [(index,) for index in range(5)]


def test_a_recorder_that_stayed_open_keeps_the_answer(store: Any, session: str) -> None:
    """(c) 18: whoever validates the message later wants to see that it was approved."""
    with store.record(session) as recorder:
        recorder.feed_many(turn(call("bash", "c", {}), approval("ap", "c"), id="m"))
        assert answer(store, session, "ap")
        recorder.feed_many([{"type": "start", "messageId": "m"}, output("c", "done"), {"type": "finish"}])
    part = parts(store, session)[1]
    assert (part["state"], part["output"]) == ("output-available", "done")
    assert part["approval"] == {"id": "ap", "approved": True}


def test_a_hidden_approval_cannot_be_answered(store: Any, session: str) -> None:
    first = say(store, session, "hi")
    record(store, session, turn(call("bash", "c"), approval("ap", "c")))
    with store.begin() as tx:
        tx.chat.sessions.rewind(session, first)
    assert not answer(store, session, "ap")
    with store.begin() as tx:
        tx.chat.sessions.unrewind(session, first)
    assert answer(store, session, "ap")


def test_of_two_approvals_the_named_one_is_answered(store: Any, session: str) -> None:
    record(store, session, turn(call("bash", "c"), approval("one", "c"), call("bash", "d"), approval("two", "d")))
    assert answer(store, session, "two")
    assert [part["state"] for part in parts(store, session)[1:]] == ["approval-requested", "approval-responded"]


def test_of_two_open_approvals_with_one_id_the_latest_is_answered(store: Any, session: str) -> None:
    """As late results do: providers count anew in every turn."""
    for number in range(4):
        record(store, session, turn(call("bash", "c"), approval("ap", "c"), id=f"m{9 - number}"))
    assert answer(store, session, "ap")
    asked = ["approval-requested"] * 3
    assert [parts(store, session, at)[1]["state"] for at in range(4)] == [*asked, "approval-responded"]


def test_a_bad_answer_is_refused(store: Any, session: str) -> None:
    record(store, session, turn(call("bash", "c"), approval("ap", "c")))
    with pytest.raises(InvalidValue):
        answer(store, session, "ap", 1)  # type: ignore[arg-type]  # the wrong type is the point
    with pytest.raises(InvalidValue):
        answer(store, session, "ap", reason=5)
    with pytest.raises(NotFound):
        answer(store, "ses_nowhere", "ap")
    assert parts(store, session)[1]["state"] == "approval-requested"


def test_the_same_call_id_in_two_turns(store: Any, session: str) -> None:
    """(c) 19: providers number their calls anew in every turn."""
    for number in (1, 2):
        record(store, session, turn(call("bash", "call_0", number), output("call_0", number * 10)))
    assert [(part["input"], part["output"]) for at in (0, 1) for part in parts(store, session, at)[1:]] == [(1, 10), (2, 20)]


def test_a_late_result_goes_to_the_latest_unfinished_call(store: Any, raw: Raw, session: str) -> None:
    """(c) 19"""
    for number in (1, 2, 3):
        record(store, session, turn(call("bash", "call_0", number)))
    record(store, session, [output("call_0", "third")])
    record(store, session, [output("call_0", "second")])
    assert [parts(store, session, at)[1].get("output") for at in range(3)] == [None, "second", "third"]
    assert raw.rows("SELECT tool_state FROM chat_parts WHERE tool_call_id = 'call_0' ORDER BY id") == [
        ("input-available",),
        ("output-available",),
        ("output-available",),
    ]
    assert len(shown(store, session)) == 3  # a result alone makes no message


@each(
    ("late", "state"),
    [
        (output("c", 1), "output-available"),
        ({"type": "tool-output-error", "toolCallId": "c", "errorText": "no"}, "output-error"),
        ({"type": "tool-output-denied", "toolCallId": "c"}, "output-denied"),
        (approval("later", "c"), "approval-requested"),
    ],
)
def test_every_kind_of_result_finds_its_call_in_an_earlier_turn(store: Any, late: Any, state: str) -> None:
    session = create(store)
    record(store, session, turn(call("bash", "c", {}), id="m"))
    say(store, session, "meanwhile")
    record(store, session, [{"type": "start", "messageId": "n"}, *step(*text("ok")), late, {"type": "finish"}])
    found = shown(store, session)
    assert [message["id"] for message in found if message["role"] == "assistant"] == ["m", "n"]
    assert found[0]["parts"][1]["state"] == state
    store.chat.sessions.delete(session)


def test_a_result_finds_the_call_of_the_message_just_closed(store: Any, session: str) -> None:
    chunks = [{"type": "start", "messageId": "m1"}, call("bash", "c"), {"type": "start", "messageId": "m2"}, output("c", 1)]
    record(store, session, [*chunks, {"type": "finish"}])
    assert parts(store, session, 0)[0]["output"] == 1


def test_the_current_message_comes_before_any_other(store: Any, session: str) -> None:
    record(store, session, turn(call("bash", "c", "old")))
    record(store, session, turn(call("bash", "c", "new"), output("c", 1), output("c", 2)))
    assert "output" not in parts(store, session, 0)[1]
    assert parts(store, session, 1)[1]["output"] == 2


@pytest.mark.parametrize("finished", [True, False])
def test_a_result_without_an_open_call_is_out_of_sequence(store: Any, session: str, finished: bool) -> None:
    if finished:
        record(store, session, turn(call("bash", "c"), output("c", 1)))
    with store.record(session) as recorder, pytest.raises(StreamProtocolError):
        recorder.feed(output("c", 2))


def test_hidden_and_foreign_calls_get_no_results(store: Any, session: str) -> None:
    first = say(store, session, "hi")
    record(store, session, turn(call("bash", "c")))
    record(store, create(store), turn(call("bash", "d")))
    with store.begin() as tx:
        tx.chat.sessions.rewind(session, first)
    for call_id in ("c", "d"):
        with store.record(session) as recorder, pytest.raises(StreamProtocolError):
            recorder.feed(output(call_id, 1))
