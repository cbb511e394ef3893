"""A `start` that names a stored message continues it, wherever it was left."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist import Settings
from persist.chat.reducer import reduce
from persist.errors import Conflict, InvalidValue, NotFound, PayloadTooLarge
from tests.cases import each
from tests.contract.chat.scenes import VECTORS, approval, call, create, output, record, say, shown, step, text, turn, words
from tests.contract.conftest import Raw


def start(id: str) -> dict[str, Any]:
    return {"type": "start", "messageId": id}


def test_indexes_continue_after_the_last_stored_part(store: Any, raw: Raw, session: str) -> None:
    record(store, session, turn(*text("one"), id="m"))
    record(store, session, turn(*text("two"), id="m"))
    (message,) = shown(store, session)
    assert words([message]) == ["onetwo"]
    assert raw.rows('SELECT p."index" FROM chat_parts p ORDER BY p."index"') == [(index,) for index in range(4)]


def test_a_gap_in_the_indexes_is_stepped_over(store: Any, raw: Raw, session: str) -> None:
    record(store, session, turn(*text("one"), id="m"))
    raw.rows('UPDATE chat_parts SET "index" = 7 WHERE type = ?', "text")
    record(store, session, [start("m"), *text("two")])
    assert raw.rows('SELECT p."index" FROM chat_parts p ORDER BY p."index"') == [(0,), (7,), (8,)]
    assert words(shown(store, session)) == ["onetwo"]


@pytest.mark.parametrize("kind", ["text", "reasoning"])
def test_a_start_that_names_an_open_part_goes_on_with_it(store: Any, other: Any, session: str, kind: str) -> None:
    def chunks(*pieces: str, id: str) -> list[dict[str, Any]]:
        return [{**chunk, "type": chunk["type"].replace("text", kind)} for chunk in text(*pieces, id=id)]

    record(
        other, session, [start("m"), *step(*chunks("done", id="a"), *chunks("cut ", id="b")[:-1], *chunks("o", id="c")[:-1])][:-1]
    )
    with store.record(session) as recorder:
        recorder.feed(start("m"))
        recorder.feed(chunks(id="c")[0])
        recorder.feed_many(chunks("f", "f", id="c")[1:-1])
        recorder.feed({**chunks(id="b")[0], "providerMetadata": {"p": {"n": 1}}})
        recorder.feed(chunks("here", id="b")[1])
        for chunk in chunks("!", id="b")[1:]:
            recorder.feed(chunk)
        recorder.feed_many(chunks("new", id="a"))
    parts = [(part["text"], part["state"]) for part in shown(other, session)[0]["parts"][1:]]
    assert parts == [("done", "done"), ("cut here!", "done"), ("off", "streaming"), ("new", "done")]
    assert shown(other, session)[0]["parts"][2]["providerMetadata"] == {"p": {"n": 1}}


def test_an_open_part_is_named_once_and_in_its_own_step_only(store: Any, session: str) -> None:
    cut = text("cut o")[:-1]
    record(store, session, [start("m"), {"type": "start-step"}, *cut])
    record(store, session, [start("m"), *text("ff"), *text("anew")])
    record(store, session, [start("n"), {"type": "start-step"}, *cut])
    record(store, session, [start("n"), {"type": "start-step"}, *text("again")])
    record(store, session, [start("o"), *cut])
    record(store, session, [start("o"), {"type": "finish-step"}, *text("again")])
    told = [[part["text"] for part in message["parts"] if "text" in part] for message in shown(store, session)]
    assert told == [["cut off", "anew"], ["cut o", "again"], ["cut o", "again"]]


def test_a_long_open_part_goes_on_and_its_limit_stays(open_store: Any) -> None:
    store = open_store(settings=Settings(max_json_bytes=400_000))
    session = create(store)
    record(store, session, [start("m"), *text("x" * 300_000)[:-1]])
    with store.record(session) as recorder:
        recorder.feed_many([start("m"), text()[0]])
        with pytest.raises(PayloadTooLarge):
            recorder.feed(text("y" * 100_001)[1])
        for chunk in text("y" * 50_000, "y" * 40_000)[1:]:
            recorder.feed(chunk)
    assert words(shown(store, session)) == ["x" * 300_000 + "y" * 90_000]


def test_a_refused_start_leaves_the_open_part_to_be_named(store: Any, session: str) -> None:
    record(store, session, [start("m"), *text("cut o")[:-1]])
    with store.record(session) as recorder:
        recorder.feed(start("m"))
        with pytest.raises(InvalidValue):
            recorder.feed({**text()[0], "providerMetadata": {"p": {"n": float("nan")}}})
        recorder.feed_many(text("ff"))
    assert words(shown(store, session)) == ["cut off"]


def test_a_resumed_message_keeps_its_place(store: Any, clock: Any, session: str) -> None:
    record(store, session, turn(*text("first"), id="m"))
    clock.advance(seconds=1)
    say(store, session, "second")
    record(store, session, turn(*text("!"), id="m"))
    assert words(shown(store, session)) == ["first!", "second"]


@each("policy", ["chunk", "step", "turn"])
def test_a_stream_may_come_back_to_a_message_of_its_own(store: Any, policy: str) -> None:
    session = create(store)
    chunks = [start("one"), *text("a"), start("two"), *text("b"), start("one"), *text("c"), {"type": "finish"}]
    record(store, session, chunks, save_on=policy)
    assert [(message["id"], words([message])[0]) for message in shown(store, session)] == [("one", "ac"), ("two", "b")]
    store.chat.sessions.delete(session)


def test_the_same_start_again_is_the_same_message(store: Any, session: str) -> None:
    record(store, session, [start("m"), *text("a"), start("m"), *text("b"), {"type": "start"}, *text("c"), {"type": "finish"}])
    assert [(message["id"], words([message])[0]) for message in shown(store, session)] == [("m", "abc")]


def test_a_message_of_another_session_is_a_conflict(store: Any, session: str) -> None:
    other = create(store)
    record(store, other, turn(*text("theirs"), id="m"))
    with store.record(session) as recorder:
        with pytest.raises(Conflict):
            recorder.feed(start("m"))
        recorder.feed_many([start("mine"), *text("fine")])
    assert words(shown(store, other)) == ["theirs"]
    assert [message["id"] for message in shown(store, session)] == ["mine"]


def test_a_resumed_part_can_be_finished(store: Any, raw: Raw, session: str) -> None:
    record(
        store, session, [start("m"), *step({"type": "tool-input-available", "toolCallId": "c", "toolName": "bash", "input": 1})]
    )
    before = raw.rows("SELECT id FROM chat_parts ORDER BY id")
    record(store, session, [start("m"), output("c", 2), {"type": "finish"}])
    assert raw.rows("SELECT id FROM chat_parts ORDER BY id") == before
    assert shown(store, session)[0]["parts"][1]["output"] == 2


# After a restart: calls that nobody will finish become errors; what waits for a human, or runs elsewhere, is left alone.


ABORTED = "aborted by host restart"


def repair(store: Any, *args: Any, **options: Any) -> int:
    return int(store.chat.messages.repair_interrupted(*args, **options))


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
    store.chat.messages.answer_approval(session, "ap", approved=True)
    return session


def test_a_denied_call_was_denied(store: Any, session: str) -> None:
    """The SDK's validator refuses an error of a call that nobody allowed."""
    record(store, session, step(call("bash", "c", {"x": 1}), approval("ap", "c")))
    store.chat.messages.answer_approval(session, "ap", approved=False, reason="no")
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
    store.chat.sessions.rewind(session, first)
    assert repair(store, session) == 0
    assert repair(store, idle=timedelta(0)) == 0


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
    seen = [part["state"] for part in shown(store, session)[0]["parts"] if "state" in part]
    assert seen == ["output-error", "output-available"]


def test_nothing_is_as_old_as_the_longest_time(store: Any, clock: Any, session: str) -> None:
    record(store, session, turn(call("bash", "c"), id="m"))
    clock.advance(seconds=1)
    assert [repair(store, idle=idle) for idle in (timedelta.max, timedelta(0))] == [0, 1]


# Replaying a stored message, whoever recorded it and whether or not it is still being recorded.


def replayed(store: Any, id: str, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.chat.messages.replay(id, **options)
    return found


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
        store.chat.sessions.delete(session)


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
