"""After a restart: calls that nobody will finish become errors; what waits for a human, or runs elsewhere, is left alone."""

from datetime import timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue, NotFound
from tests.contract.chat.scenes import approval, call, create, output, record, say, shown, step, turn

ABORTED = "aborted by host restart"


def repair(store: Any, *args: Any, **options: Any) -> int:
    with store.begin() as tx:
        return int(tx.chat.messages.repair_interrupted(*args, **options))


def states(store: Any, session: str) -> dict[str, str]:
    return {
        part["toolCallId"]: part["state"] for message in shown(store, session) for part in message["parts"] if "state" in part
    }


@pytest.fixture
def interrupted(store: Any, session: str) -> str:
    """A message with a call in every state that a crash can leave."""
    chunks = [
        {"type": "tool-input-start", "toolCallId": "streaming", "toolName": "bash"},
        {"type": "tool-input-delta", "toolCallId": "streaming", "inputTextDelta": '{"command": "l'},
        call("bash", "available", {"x": 1}),
        call("question", "question", {}),
        call("bash", "responded", {}),
        approval("ap", "responded"),
        call("bash", "requested", {}),
        approval("open", "requested"),
        call("bash", "finished", {}),
        output("finished", 1),
    ]
    record(store, session, step(*chunks))
    with store.begin() as tx:
        tx.chat.messages.answer_approval(session, "ap", approved=True)
    return session


def test_a_denied_call_was_denied(store: Any, session: str) -> None:
    """The SDK's validator refuses an error of a call that nobody allowed."""
    record(store, session, step(call("bash", "c", {"x": 1}), approval("ap", "c")))
    with store.begin() as tx:
        tx.chat.messages.answer_approval(session, "ap", approved=False, reason="no")
    assert repair(store, session) == 1
    assert shown(store, session)[0]["parts"][1] == {
        "type": "tool-bash",
        "toolCallId": "c",
        "state": "output-denied",
        "input": {"x": 1},
        "approval": {"id": "ap", "approved": False, "reason": "no"},
    }
    assert repair(store, session) == 0


def test_unfinished_calls_become_errors_and_human_ones_wait(store: Any, interrupted: str) -> None:
    """(c) 27"""
    assert repair(store, interrupted, human_input_tools=["question"]) == 3
    assert states(store, interrupted) == {
        "streaming": "output-error",
        "available": "output-error",
        "question": "input-available",
        "responded": "output-error",
        "requested": "approval-requested",
        "finished": "output-available",
    }
    (message,) = shown(store, interrupted)
    by_call = {part["toolCallId"]: part for part in message["parts"] if "toolCallId" in part}
    assert by_call["available"] == {
        "type": "tool-bash",
        "toolCallId": "available",
        "state": "output-error",
        "input": {"x": 1},
        "errorText": ABORTED,
    }
    assert repair(store, interrupted, human_input_tools=["question"]) == 0


def test_a_question_is_no_exception_unless_named(store: Any, interrupted: str) -> None:
    assert repair(store, interrupted) == 4
    assert states(store, interrupted)["question"] == "output-error"


def test_hidden_messages_are_left_as_they_are(store: Any, session: str) -> None:
    first = say(store, session, "hi")
    record(store, session, turn(call("bash", "c")))
    with store.begin() as tx:
        tx.chat.sessions.rewind(session, first)
    assert repair(store, session) == 0


def test_a_running_turn_is_not_repaired(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed(call("bash", "c"))
        assert repair(store, session) == 0
        assert repair(store, idle=timedelta(0)) == 0
    assert repair(store, session) == 1


def test_without_a_session_only_what_was_untouched_for_a_while(store: Any, clock: Any, session: str) -> None:
    record(store, session, turn(call("bash", "old")))
    clock.advance(seconds=240)
    recent = create(store)
    record(store, recent, turn(call("bash", "new")))
    assert repair(store) == 0
    clock.advance(seconds=60)
    assert repair(store) == 1
    assert (states(store, session), states(store, recent)) == ({"old": "output-error"}, {"new": "input-available"})
    assert repair(store, idle=timedelta(seconds=59)) == 1


def test_other_sessions_are_not_touched(store: Any, session: str) -> None:
    other = create(store)
    for id in (session, other):
        record(store, id, turn(call("bash", "c")))
    assert repair(store, session) == 1
    assert states(store, other) == {"c": "input-available"}


def test_a_repaired_message_can_be_followed(store: Any, session: str) -> None:
    record(store, session, turn(call("bash", "c"), id="m"))
    repair(store, session)
    record(store, session, [{"type": "start", "messageId": "m"}, *step(call("bash", "c"), output("c", 2))])
    assert [part["state"] for part in shown(store, session)[0]["parts"] if "state" in part] == [
        "output-error",
        "output-available",
    ]


def test_nothing_is_as_old_as_the_longest_time(store: Any, clock: Any, session: str) -> None:
    record(store, session, turn(call("bash", "c"), id="m"))
    clock.advance(seconds=1)
    assert [repair(store, idle=idle) for idle in (timedelta.max, timedelta(0))] == [0, 1]


def test_bad_arguments_are_refused(store: Any, session: str) -> None:
    with store.begin() as tx:
        with pytest.raises(NotFound):
            tx.chat.messages.repair_interrupted("ses_nowhere")
        for idle in (300, timedelta(microseconds=-1), timedelta.min):
            with pytest.raises(InvalidValue, match="idle"):
                tx.chat.messages.repair_interrupted(idle=idle)
        with pytest.raises(InvalidValue):
            tx.chat.messages.repair_interrupted(session, human_input_tools="question")
