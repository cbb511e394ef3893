"""The queue: messages that wait behind a running turn, fired once each, in order."""

from typing import Any

import pytest

from persist.errors import Conflict, StreamProtocolError
from tests.cases import each
from tests.contract.chat.scenes import approval, call, create, output, record, say, session_of, shown, step, text, turn, words
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face

HI = [{"type": "text", "text": "hi"}]


def enqueue(store: Any, session: str, words: str = "hi", **fields: Any) -> Any:
    return store.chat.messages.enqueue(session, parts=[{"type": "text", "text": words}], **fields)


def claim(store: Any, session: str, **options: Any) -> Any:
    return store.chat.messages.claim_queued(session, **options)


def cancel(store: Any, id: str) -> bool:
    return bool(store.chat.messages.cancel_queued(id))


def waiting(store: Any, session: str) -> list[str]:
    return [message.id for message in store.chat.messages.queued(session)]


def test_a_queued_message_is_a_user_row_out_of_sight(store: Any, clock: Any, session: str) -> None:
    at = int(clock().timestamp() * 1000)
    message = enqueue(store, session, metadata={"custom": 1})
    assert message.role == "user"
    assert message.metadata == {"custom": 1, "queued_at": at, "queue_enqueued_at": at}
    assert waiting(store, session) == [message.id]
    assert store.chat.messages.list(session) == store.chat.messages.model_view(session) == []


def test_first_in_first_out_whatever_the_ids(store: Any, session: str) -> None:
    ids = [enqueue(store, session, id, id=id).id for id in ("z", "a", "m")]
    assert waiting(store, session) == ids
    fired = []
    while message := claim(store, session):
        fired.append(message.id)
    assert fired == ids
    assert [message["id"] for message in shown(store, session)] == ids


def test_a_message_whose_process_died_before_its_first_chunk_is_offered_again(
    store: Any, raw: Raw, clock: Any, session: str
) -> None:
    taken, later = enqueue(store, session, "first"), enqueue(store, session, "second")
    assert claim(store, session).id == taken.id
    raw.rows("UPDATE chat_messages SET claimed_by = 'elsewhere/-/-/-/7/-/000000000000' WHERE id = ?", taken.id)
    assert claim(store, session).id == later.id  # that process may still live

    raw.rows("UPDATE chat_messages SET claimed_by = 'elsewhere/-/-/-/7/-/000000000000' WHERE id = ?", later.id)
    clock.advance(seconds=61)
    again = claim(store, session)
    assert (again.id, again.metadata) == (later.id, {"queue_enqueued_at": again.metadata["queue_enqueued_at"]})
    clock.advance(seconds=61)
    assert claim(store, session) is None  # it is taken by a process that lives: this one


def test_a_message_whose_answer_began_is_not_offered_again(store: Any, raw: Raw, clock: Any, session: str) -> None:
    enqueue(store, session)
    claim(store, session)
    raw.rows("UPDATE chat_messages SET claimed_by = 'elsewhere/-/-/-/7/-/000000000000'")
    clock.advance(seconds=61)
    record(store, session, turn(*text("an answer")))
    assert claim(store, session) is None


def test_a_fired_message_comes_after_what_was_said_meanwhile(store: Any, clock: Any, session: str) -> None:
    say(store, session, "first")
    with store.record(session) as recorder:
        recorder.feed_many(turn(*text("reply"))[:-1])
        enqueued = enqueue(store, session, "second", id="aaa")
        clock.advance(seconds=3)
        recorder.feed({"type": "finish"})
    at = clock.advance(seconds=1)
    fired = claim(store, session)
    assert (fired.id, fired.created_at) == (enqueued.id, at)
    assert "queued_at" not in fired.metadata
    assert fired.metadata["queue_enqueued_at"] == enqueued.metadata["queue_enqueued_at"]
    assert words(shown(store, session)) == ["first", "reply", "second"]
    assert store.chat.messages.get(fired.id)["parts"] == [{"type": "text", "text": "second"}]


def test_a_fired_message_sorts_last_even_within_the_millisecond(store: Any, session: str) -> None:
    enqueue(store, session, "queued", id="000")
    say(store, session, "reply", role="assistant", id="zzz")
    claim(store, session)
    assert words(shown(store, session)) == ["reply", "queued"]


def test_the_id_makes_it_idempotent(store: Any, session: str) -> None:
    first = enqueue(store, session, "same", id="client-1", metadata={"k": 1})
    assert enqueue(store, session, "same", id="client-1", metadata={"k": 1}) == first
    with pytest.raises(Conflict), store.begin() as tx:
        tx.chat.messages.enqueue(session, parts=HI, id="client-1")
    with pytest.raises(Conflict):
        enqueue(store, create(store), "same", id="client-1")
    assert waiting(store, session) == ["client-1"]
    fired = claim(store, session)
    assert enqueue(store, session, "same", id="client-1", metadata={"k": 1}) == fired
    assert waiting(store, session) == []
    enqueue(store, session, "other", id="client-2")
    assert cancel(store, "client-2")
    assert enqueue(store, session, "other", id="client-2").metadata["queue_canceled_at"]
    assert waiting(store, session) == []


def test_a_delivery_is_taken_once(store: Any, session: str) -> None:
    trigger = {"source": "webhook", "delivery_id": "d-1"}
    first = enqueue(store, session, "hook", metadata={"trigger": trigger})
    assert enqueue(store, session, "hook, retried", metadata={"trigger": trigger}).id == first.id
    fired = claim(store, session)
    assert enqueue(store, session, "hook", metadata={"trigger": trigger}) == fired
    other = enqueue(store, session, "hook", metadata={"trigger": {**trigger, "delivery_id": "d-2"}})
    assert cancel(store, other.id)
    assert enqueue(store, session, "hook", metadata={"trigger": {**trigger, "delivery_id": "d-2"}}).id == other.id
    assert waiting(store, session) == []
    assert enqueue(store, create(store), "hook", metadata={"trigger": trigger}).id != first.id


def test_a_message_is_either_fired_or_canceled(store: Any, clock: Any, session: str) -> None:
    one, two = enqueue(store, session, "one"), enqueue(store, session, "two")
    clock.advance(seconds=1)
    assert cancel(store, one.id)
    assert not cancel(store, one.id)
    assert claim(store, session).id == two.id
    assert not cancel(store, two.id)
    assert not cancel(store, "msg_nowhere")
    assert claim(store, session) is None
    assert words(shown(store, session)) == ["two"]
    tombstone = store.chat.messages.get(one.id)["metadata"]
    assert tombstone.keys() == {"queue_enqueued_at", "queue_canceled_at", "hidden_at"}


def test_a_message_that_never_waited_cannot_be_canceled(store: Any, session: str) -> None:
    assert not cancel(store, say(store, session, "hi"))
    assert len(shown(store, session)) == 1


def test_nothing_fires_while_a_turn_runs(store: Any, session: str) -> None:
    message = enqueue(store, session)
    with store.record(session) as recorder:
        recorder.feed({"type": "start-step"})
        assert claim(store, session) is None
        recorder.feed({"type": "finish"})
        assert claim(store, session).id == message.id


def test_an_abort_drains_on_and_an_error_pauses_until_the_next_turn(store: Any, session: str) -> None:
    one, two = enqueue(store, session, "one"), enqueue(store, session, "two")
    record(store, session, [*text("x"), {"type": "abort"}])
    assert claim(store, session).id == one.id
    record(store, session, [*text("y"), {"type": "error", "errorText": "overloaded"}, {"type": "finish"}])
    assert claim(store, session) is None
    record(store, session, turn(*text("fine again")))
    assert claim(store, session).id == two.id


def test_an_open_approval_or_question_pauses(store: Any, session: str) -> None:
    message = enqueue(store, session)
    record(store, session, turn(call("bash", "c", {}), approval("a", "c")))
    assert claim(store, session) is None
    assert store.chat.messages.answer_approval(session, "a", approved=True)
    record(store, session, turn(call("question", "q", {})))
    assert claim(store, session, human_input_tools=["question"]) is None
    assert claim(store, session, human_input_tools=["another"]).id == message.id


def test_a_hidden_approval_does_not_pause(store: Any, session: str) -> None:
    first = say(store, session, "hi")
    message = enqueue(store, session)
    record(store, session, turn(call("bash", "c", {}), approval("a", "c")))
    store.chat.sessions.rewind(session, first)
    assert claim(store, session).id == message.id


def test_the_model_of_a_queued_message_counts_when_it_fires(store: Any, session: str) -> None:
    model = {"provider_id": "openai", "model_id": "gpt"}
    before = session_of(store, session).model
    enqueue(store, session, metadata={"model": model})
    assert session_of(store, session).model == before
    claim(store, session)
    assert session_of(store, session).model == model


LONG_DELIVERY = "d" * 300


@on_one_face
@each("delivery", ["d-1", LONG_DELIVERY, LONG_DELIVERY + "e", "d\x00", "d\ud83d", "\ufdd0", "5", "a'b\"\\", "Grüße 😀"])
def test_a_delivery_is_known_by_all_of_its_id(store: Any, delivery: str) -> None:
    session = create(store)
    say(store, session, "no trigger")
    say(store, session, "another", metadata={"trigger": "word"})
    say(store, session, "a number", metadata={"trigger": {"delivery_id": 5}})
    say(store, session, "nobody's", role="assistant", metadata={"trigger": {"delivery_id": delivery}})
    longer = enqueue(store, session, "hook", metadata={"trigger": {"delivery_id": LONG_DELIVERY + "f"}})
    first = enqueue(store, session, "hook", metadata={"trigger": {"delivery_id": delivery}})
    assert enqueue(store, session, "hook", metadata={"trigger": {"delivery_id": delivery}}).id == first.id != longer.id
    assert enqueue(store, create(store), "hook", metadata={"trigger": {"delivery_id": delivery}}).id != first.id


# Approvals, and results that arrive in a later stream than their call.


def answer(store: Any, session: str, id: str, approved: bool = True, **options: Any) -> bool:
    return bool(store.chat.messages.answer_approval(session, id, approved=approved, **options))


def parts(store: Any, session: str, at: int = -1) -> list[Any]:
    return list(shown(store, session)[at]["parts"])


def test_only_an_open_approval_is_answered_and_once(store: Any, session: str) -> None:
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
    record(store, session, turn(*text("let me see"), call("bash", "c", {}), approval("ap", "c"), id="m"))
    assert answer(store, session, "ap")
    resumed = [{"type": "start", "messageId": "m"}, output("c", "done"), *step(*text("there")), {"type": "finish"}]
    assert record(store, session, resumed) == "m"
    (message,) = shown(store, session)
    assert [part["type"] for part in message["parts"]] == ["step-start", "text", "tool-bash", "step-start", "text"]
    assert message["parts"][2]["output"] == "done"
    assert raw.rows('SELECT p."index" FROM chat_parts p ORDER BY p."index"') == [(index,) for index in range(5)]


def test_a_recorder_that_stayed_open_keeps_the_answer(store: Any, session: str) -> None:
    """Whoever validates the message later wants to see that it was approved."""
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
    store.chat.sessions.rewind(session, first)
    assert not answer(store, session, "ap")
    store.chat.sessions.unrewind(session, first)
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


def test_a_late_result_goes_to_the_latest_unfinished_call(store: Any, raw: Raw, session: str) -> None:
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
    store.chat.sessions.rewind(session, first)
    for call_id in ("c", "d"):
        with store.record(session) as recorder, pytest.raises(StreamProtocolError):
            recorder.feed(output(call_id, 1))
