"""What a browser answers: approvals, results of its tools; half an answer, a turn that runs, a queue."""

from typing import Any

import pytest

from persist.errors import NotFound
from tests.cases import each
from tests.contract.chat.posts import (
    approved,
    asked,
    assistant,
    changed,
    half,
    posted,
    replaced,
    sync,
    talk,
    unchanged,
    user,
    waits,
    with_result,
)
from tests.contract.chat.scenes import approval, call, create, record, say, shown, text, turn, words
from tests.contract.conftest import Raw

# ---------------------------------------------------------------- answers of the person and of the client's tools


@pytest.mark.parametrize(("yes", "reason"), [(True, {}), (False, {"reason": "too risky"})])
def test_an_approval_is_answered(store: Any, raw: Raw, session: str, yes: bool, reason: dict[str, Any]) -> None:
    u1, a1 = asked(store, session, signature="s")
    answered = approved(a1, approved=yes, **reason)
    options = {"trigger": "submit-message", "message_id": "a1"}
    assert dict(sync(store, session, posted(u1, answered), **options)) == changed(approvals=["ap"], continues="a1")
    assert shown(store, session)[1]["parts"][1]["approval"] == {"id": "ap", "signature": "s", "approved": yes, **reason}
    assert raw.value("SELECT tool_state FROM chat_parts WHERE tool_call_id = 'c1'") == "approval-responded"
    assert dict(sync(store, session, posted(u1, answered), **options)) == unchanged(continues="a1")


def test_an_answered_approval_is_continued_by_the_recorder(store: Any, session: str) -> None:
    u1, a1 = asked(store, session)
    found = sync(store, session, posted(u1, with_result(approved(a1), output="here")), trigger="submit-message", message_id="a1")
    assert dict(found) == changed(approvals=["ap"], tool_outputs=["c2"], continues="a1")
    resumed = [
        {"type": "start", "messageId": found.continues},
        {"type": "tool-output-available", "toolCallId": "c1", "output": 1},
    ]
    record(store, session, [*resumed, {"type": "finish"}])
    states = [part.get("state") for part in shown(store, session)[1]["parts"]]
    assert states == [None, "output-available", "output-available"]


@each("result", [{"output": {"lat": 1}}, {"output": None}, {"errorText": "no"}])
def test_the_result_of_a_clients_tool_is_stored(store: Any, raw: Raw, result: dict[str, Any]) -> None:
    session = create(store)
    u1, a1 = asked(store, session)
    messages = posted(u1, with_result(a1, **result))
    assert dict(sync(store, session, messages, client_tools=["locate"])) == changed(tool_outputs=["c2"], continues="a1")
    state = "output-error" if "errorText" in result else "output-available"
    before = {"type": "tool-locate", "toolCallId": "c2", "input": {"precise": True}}
    assert shown(store, session)[1]["parts"][2] == {**before, "state": state, **result}
    assert raw.value("SELECT tool_state FROM chat_parts WHERE tool_call_id = 'c2'") == state
    assert dict(sync(store, session, messages, client_tools=["locate"])) == unchanged(continues="a1")
    store.chat.sessions.delete(session)


def test_a_result_without_a_value_is_null(store: Any, session: str) -> None:
    u1, a1 = asked(store, session)
    messages = posted(u1, with_result(a1))
    assert sync(store, session, messages).tool_outputs == ["c2"]
    assert shown(store, session)[1]["parts"][2]["output"] is None
    assert not sync(store, session, messages).changed


def test_a_clients_tool_that_was_approved_gives_its_result(store: Any, session: str) -> None:
    u1, a1 = asked(store, session)
    sync(store, session, posted(u1, approved(a1)))
    a1 = shown(store, session)[1]
    found = sync(store, session, posted(u1, with_result(a1, at=1, output="gone")), client_tools=["delete"])
    assert found.tool_outputs == ["c1"]
    assert shown(store, session)[1]["parts"][1]["approval"] == {"id": "ap", "approved": True}


def test_an_earlier_approval_goes_on_in_its_message(store: Any, session: str) -> None:
    u1, a1 = asked(store, session)
    u2 = user("u2", "and now?")
    sync(store, session, posted(u1, a1, u2))
    found = sync(store, session, posted(u1, approved(a1), u2), trigger="submit-message", message_id="a1")
    assert dict(found) == changed(approvals=["ap"], continues="a1")


def test_an_approval_and_a_new_question_come_together(store: Any, session: str) -> None:
    u1, a1 = asked(store, session)
    found = sync(store, session, posted(u1, approved(a1), user("u2", "go on")), trigger="submit-message")
    assert dict(found) == changed(added=["u2"], approvals=["ap"])


def test_what_the_answer_says_beyond_the_approval_stays_the_stores(store: Any, session: str) -> None:
    u1, a1 = asked(store, session, signature="s")
    answered = approved(a1)
    answered["parts"][1]["approval"] |= {"signature": "forged", "isAutomatic": True, "providerMetadata": {"a": {}}}
    answered["parts"][1] |= {"title": "harmless", "callProviderMetadata": {"a": {"b": 1}}}
    sync(store, session, posted(u1, {**answered, "metadata": {"usage": {"input": 10**6}}}))
    stored = shown(store, session)[1]
    assert stored["parts"][1].keys() == {"type", "toolCallId", "state", "input", "approval"}
    assert stored["parts"][1]["approval"] == {"id": "ap", "signature": "s", "approved": True}
    assert "metadata" not in stored


# ---------------------------------------------------------------- a browser that lost half an answer


def test_half_an_answer_is_whole_in_the_store(store: Any, session: str) -> None:
    *before, answer = talk(store, session)
    found = sync(store, session, posted(*before, half(answer), user("u3", "go on")), trigger="submit-message")
    assert dict(found) == changed(added=["u3"])
    assert shown(store, session)[3] == answer


def test_half_an_answer_is_known_by_its_place(store: Any, session: str) -> None:
    u1, a1, u2, a2 = talk(store, session)
    lost = [u1, {**a1, "id": "x"}, u2, {**half(a2), "id": "y"}]
    assert dict(sync(store, session, posted(*lost), trigger="submit-message", message_id="y")) == unchanged(continues="a2")
    assert dict(sync(store, session, posted(*lost, user("u3", "on")))) == changed(added=["u3"])
    assert shown(store, session)[:4] == [u1, a1, u2, a2]


def test_an_approval_is_answered_under_an_id_of_the_browsers(store: Any, session: str) -> None:
    u1, a1 = asked(store, session)
    found = sync(store, session, posted(u1, {**approved(a1), "id": "x"}), trigger="submit-message", message_id="x")
    assert dict(found) == changed(approvals=["ap"], continues="a1")


@pytest.mark.parametrize("parts", [[], [{"type": "step-start"}]])
def test_an_answer_without_a_word_says_nothing(store: Any, session: str, parts: list[Any]) -> None:
    say(store, session, "asked", id="u1")
    question = shown(store, session)[0]
    found = sync(store, session, posted(question, assistant("lost", *parts)), trigger="submit-message")
    assert dict(found) == unchanged()
    assert sync(store, session, posted(question, assistant("lost", *parts), user("u2", "?"))).added == ["u2"]


def test_an_earlier_state_of_a_tool_call_is_fine(store: Any, session: str) -> None:
    u1, a1 = asked(store, session)
    sync(store, session, posted(u1, with_result(approved(a1), output=1)))
    streaming = {"type": "tool-delete", "toolCallId": "c1", "state": "input-streaming", "input": {"pa": 1}, "rawInput": '{"pa'}
    available = {"type": "tool-delete", "toolCallId": "c1", "state": "input-available", "input": {"path": "x"}}
    for earlier in (streaming, available, a1["parts"][1]):
        assert not sync(store, session, posted(u1, replaced(a1, 1, earlier))).changed
        assert not sync(store, session, posted(u1, assistant("a1", *a1["parts"][:1], earlier))).changed


def test_an_earlier_value_of_data_is_fine(store: Any, session: str) -> None:
    say(store, session, "weather?", id="u1")
    record(
        store, session, turn({"type": "data-w", "id": "d", "data": {"at": 1}}, {"type": "data-w", "id": "d", "data": 2}, id="a1")
    )
    u1, a1 = shown(store, session)
    earlier = replaced(a1, 1, {"type": "data-w", "id": "d", "data": {"at": 1}})
    assert not sync(store, session, posted(u1, earlier)).changed


def test_a_text_cut_inside_of_a_character_is_a_beginning(store: Any, session: str) -> None:
    say(store, session, "smile", id="u1")
    record(store, session, turn(*text("a😀b"), id="a1"))
    u1, a1 = shown(store, session)
    assert not sync(store, session, [u1, replaced(a1, 1, {"type": "text", "text": "a\ud83d", "state": "streaming"})]).changed


def test_text_that_is_not_folded_yet_is_part_of_the_answer(store: Any, session: str) -> None:
    say(store, session, "tell me", id="u1")
    with store.record(session) as recorder:
        recorder.feed_many(waits(text("Once ", "upon ", "a time")[:-1], "a1"))
        u1, a1 = shown(store, session)
        found = sync(store, session, posted(u1, a1), trigger="submit-message")
        assert dict(found) == unchanged(continues="a1", running=True)


# ---------------------------------------------------------------- while a turn runs, and with a queue


def test_a_turn_that_runs_is_told_of(store: Any, session: str) -> None:
    say(store, session, "asked", id="u1")
    question = shown(store, session)[0]
    with store.record(session) as recorder:
        recorder.feed_many(waits(text("on its way"), "a1"))
        for options in ({}, {"trigger": "submit-message"}):
            found = sync(store, session, posted(question), **options)
            assert dict(found) == unchanged(running=True, answered_by="a1")
        recorder.feed({"type": "finish"})


def test_a_turn_whose_process_is_gone_does_not_run(store: Any, raw: Raw, clock: Any, session: str) -> None:
    say(store, session, "asked", id="u1")
    question = shown(store, session)[0]
    with store.record(session) as recorder:
        recorder.feed_many(waits(text("half"), "a1"))
        raw.rows("UPDATE chat_turns SET owner = 'elsewhere/-/-/-/7/-/000000000000'")
        clock.advance(seconds=61)
        assert dict(sync(store, session, posted(question))) == changed(hidden=["a1"])
        assert raw.count("chat_turns") == 0


def test_queued_messages_stay_queued(store: Any, session: str) -> None:
    history = talk(store, session)
    with store.begin() as tx:
        tx.chat.messages.enqueue(session, parts=[{"type": "text", "text": "later"}], id="q")
    assert dict(sync(store, session, posted(*history, user("q", "later")))) == unchanged()
    assert dict(sync(store, session, posted(*history, user("q", "changed"), user("u3", "now")))) == changed(added=["u3"])
    with store.read() as tx:
        assert [message.id for message in tx.chat.messages.queued(session)] == ["q"]


def test_a_claimed_message_is_a_question_like_any(store: Any, session: str) -> None:
    with store.begin() as tx:
        tx.chat.messages.enqueue(session, parts=[{"type": "text", "text": "later"}], id="q")
        tx.chat.messages.claim_queued(session)
    record(store, session, turn(*text("now"), id="a1"))
    stored = shown(store, session)
    assert "queue_enqueued_at" in stored[0]["metadata"]
    assert not sync(store, session, posted(*stored)).changed
    assert sync(store, session, posted(user("q", "edited")), trigger="submit-message").edited == ["q"]
    assert shown(store, session)[0]["metadata"] == stored[0]["metadata"]


def test_without_the_session_nothing_is_taken(store: Any, session: str) -> None:
    with pytest.raises(NotFound):
        sync(store, "nowhere", posted(user("u1", "hello")))


def test_two_sessions_are_two(store: Any, session: str) -> None:
    other = create(store)
    sync(store, session, posted(user("u1", "here")))
    sync(store, other, posted(user("u2", "there")))
    assert words(shown(store, session)) == ["here"]
    assert words(shown(store, other)) == ["there"]


def test_providers_that_reuse_call_ids_get_each_their_own(store: Any, session: str) -> None:
    say(store, session, "twice", id="u1")
    chunks = [*turn(call("locate", "c", {"n": 1}), id="a1")[:-1], *turn(call("locate", "c", {"n": 2}), approval("ap", "c"))[1:]]
    record(store, session, chunks)
    u1, a1 = shown(store, session)
    first, second = (place for place, part in enumerate(a1["parts"]) if part["type"] == "tool-locate")
    found = sync(store, session, posted(u1, with_result(approved(a1, at=second), at=first, output="one")))
    assert (found.approvals, found.tool_outputs) == (["ap"], ["c"])
    assert [shown(store, session)[1]["parts"][at]["state"] for at in (first, second)] == [
        "output-available",
        "approval-responded",
    ]
