"""What a browser asks is taken in: new and edited questions, and answers that are to be given again."""

from typing import Any

import pytest

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
from tests.contract.chat.scenes import approval, call, create, record, rollup, say, session_of, shown, text, turn, words
from tests.contract.conftest import Raw


def test_a_first_question_is_appended_under_its_id(store: Any, session: str) -> None:
    question = user("u1", "hello", metadata={"from": "phone"})
    assert dict(sync(store, session, posted(question), trigger="submit-message")) == changed(added=["u1"])
    assert shown(store, session) == [question]
    assert dict(sync(store, session, posted(question), trigger="submit-message")) == unchanged()
    assert shown(store, session) == [question]


def test_a_question_follows_the_whole_history_or_its_end_or_nothing(store: Any, clock: Any, session: str) -> None:
    history = talk(store, session)
    clock.advance(seconds=1)
    for number, before in enumerate((history, history[-1:], [])):
        question = user(f"new {number}", "more")
        assert dict(sync(store, session, posted(*before, question))) == changed(added=[question["id"]])
        assert shown(store, session)[-1] == question
    assert session_of(store, session).updated_at == clock()


def test_several_new_questions_stay_in_order(store: Any, session: str) -> None:
    new = [user("z", "one"), user("a", "two"), user("m", "three")]
    assert sync(store, session, posted(*talk(store, session), *new)).added == ["z", "a", "m"]
    assert words(shown(store, session)[4:]) == ["one", "two", "three"]


def test_a_tab_that_lacks_later_messages_hides_nothing(store: Any, session: str) -> None:
    u1, a1, *_ = talk(store, session)
    assert dict(sync(store, session, posted(u1, a1, user("u3", "late")))) == changed(added=["u3"])
    assert [message["id"] for message in shown(store, session)] == ["u1", "a1", "u2", "a2", "u3"]


def test_a_tab_that_lacks_messages_in_between_hides_nothing(store: Any, session: str) -> None:
    u1, _, u2, a2 = talk(store, session)
    assert dict(sync(store, session, posted(u1, u2, a2, user("u3", "more")))) == changed(added=["u3"])
    assert len(shown(store, session)) == 5


def test_the_model_of_the_session_is_the_hosts_to_choose(store: Any, session: str) -> None:
    before = session_of(store, session).model
    question = user("u1", "hello", metadata={"model": {"model_id": "dearest"}})
    sync(store, session, posted(question))
    assert session_of(store, session).model == before
    assert shown(store, session) == [question]


def test_an_edited_question_takes_back_what_followed(store: Any, raw: Raw, clock: Any, session: str) -> None:
    u1, a1, _, _ = talk(store, session)
    created = raw.value("SELECT created_at FROM chat_messages WHERE id = 'u2'")
    clock.advance(seconds=1)
    edited = user("u2", "another question")
    options = {"trigger": "submit-message", "message_id": "u2"}
    assert dict(sync(store, session, posted(u1, a1, edited), **options)) == changed(edited=["u2"], hidden=["a2"])
    assert shown(store, session) == [u1, a1, edited]
    assert raw.value("SELECT created_at FROM chat_messages WHERE id = 'u2'") == created
    assert session_of(store, session).updated_at == clock()
    assert dict(sync(store, session, posted(u1, a1, edited), **options)) == unchanged()
    assert store.chat.sessions.unrewind(session, "u2") == 1


def test_an_edit_may_have_more_or_fewer_parts(store: Any, raw: Raw, session: str) -> None:
    talk(store, session)
    for texts in (["a", "b", "c"], ["d"]):
        question = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": one} for one in texts]}
        assert sync(store, session, posted(question), trigger="submit-message").edited == ["u1"]
        assert shown(store, session) == [question]
        assert raw.value("SELECT count(*) FROM chat_parts WHERE message_id = 'u1'") == len(texts)


def test_an_edit_replaces_the_metadata_that_it_gives(store: Any, session: str) -> None:
    kept = {"trigger": {"type": "cron"}, "system_prompt_digest": "d"}
    say(store, session, "asked", id="u1", metadata={**kept, "mood": "calm", "from": "phone"})
    sync(store, session, posted(user("u1", "first edit")), trigger="submit-message")
    assert shown(store, session)[0]["metadata"] == {**kept, "mood": "calm", "from": "phone"}
    sync(store, session, posted(user("u1", "second edit", metadata={"mood": "angry"})), trigger="submit-message")
    assert shown(store, session)[0]["metadata"] == {**kept, "mood": "angry"}


def test_what_the_server_added_to_a_question_is_no_edit(store: Any, session: str) -> None:
    question = user("u1", "hello", metadata={"from": "phone"})
    sync(store, session, posted(question))
    record(store, session, turn(*text("hi"), id="a1"))
    store.chat.messages.update_metadata("u1", {"topic": "greeting", "from": "desk"})
    stored = shown(store, session)
    answer = stored[1]
    assert dict(sync(store, session, posted(question, answer), trigger="submit-message")) == unchanged(continues="a1")
    assert shown(store, session) == stored


def test_numbers_that_a_browser_writes_otherwise_are_no_edit(store: Any, session: str) -> None:
    data = {"whole": 1.0, "large": 2**63 + 1, "minus": -0.0, "text": "a\ud83d", "half": 0.5}
    store.chat.messages.append(session, role="user", parts=[{"type": "data-x", "data": data}], id="u1")
    browsers = {**data, "whole": 1, "large": 9223372036854776000, "minus": 0}
    question = {"id": "u1", "role": "user", "parts": [{"type": "data-x", "data": browsers}]}
    assert dict(sync(store, session, [question])) == unchanged()


@each("options", [{}, {"trigger": "regenerate-message"}, {"trigger": "regenerate-message", "message_id": "a2"}])
def test_an_answer_is_taken_back_to_be_given_again(store: Any, options: dict[str, str]) -> None:
    session = create(store)
    history = talk(store, session)
    assert dict(sync(store, session, posted(*history[:3]), **options)) == changed(hidden=["a2"])
    assert shown(store, session) == history[:3]
    assert dict(sync(store, session, posted(*history[:3]), **options)) == unchanged()
    store.chat.sessions.delete(session)


def test_an_earlier_answer_is_taken_back_with_all_that_followed(store: Any, session: str) -> None:
    history = talk(store, session)
    found = sync(store, session, posted(history[0]), trigger="regenerate-message", message_id="a1")
    assert dict(found) == changed(hidden=["a1", "u2", "a2"])
    assert shown(store, session) == history[:1]


def test_an_answer_that_was_given_again_is_not_taken_back_by_the_same_post(store: Any, session: str) -> None:
    history = talk(store, session)
    again = {"trigger": "regenerate-message", "message_id": "a2"}
    sync(store, session, posted(*history[:3]), **again)
    record(store, session, turn(*text("better"), id="a3"))
    assert dict(sync(store, session, posted(*history[:3]), **again)) == unchanged()
    assert words(shown(store, session))[-1] == "better"


def test_an_answer_under_an_id_of_the_browsers_is_taken_back(store: Any, session: str) -> None:
    history = talk(store, session)
    found = sync(store, session, posted(*history[:3]), trigger="regenerate-message", message_id="of the browser")
    assert dict(found) == changed(hidden=["a2"])


def test_a_first_message_of_the_assistant_is_taken_back(store: Any, session: str) -> None:
    say(store, session, "Welcome!", role="assistant", id="hello")
    assert dict(sync(store, session, [])) == unchanged()
    found = sync(store, session, [], trigger="regenerate-message", message_id="hello")
    assert dict(found) == changed(hidden=["hello"])


def test_a_question_that_is_asked_once_more_has_its_answer(store: Any, session: str) -> None:
    history = talk(store, session)
    again = sync(store, session, posted(*history[:3]), trigger="submit-message")
    assert dict(again) == unchanged(answered_by="a2")
    assert shown(store, session) == history


def test_what_is_taken_back_is_no_longer_counted(store: Any, session: str) -> None:
    history = talk(store, session)
    with store.begin() as tx:
        tx.chat.messages.record_step_usage("a1", 0, input_tokens=10, output_tokens=1)
        tx.chat.messages.record_step_usage("a2", 0, input_tokens=20, output_tokens=2)
    sync(store, session, posted(*history[:3]), trigger="regenerate-message")
    assert rollup(store, session) == (10, 1, 0, 0, 0, 11)
    store.chat.sessions.unrewind(session, "u2")
    assert rollup(store, session) == (30, 3, 0, 0, 0, 33)


# What a browser answers: approvals, results of its tools; half an answer, a turn that runs, a queue.


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
    store.chat.messages.enqueue(session, parts=[{"type": "text", "text": "later"}], id="q")
    assert dict(sync(store, session, posted(*history, user("q", "later")))) == unchanged()
    assert dict(sync(store, session, posted(*history, user("q", "changed"), user("u3", "now")))) == changed(added=["u3"])
    assert [message.id for message in store.chat.messages.queued(session)] == ["q"]


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


def test_providers_that_reuse_call_ids_get_each_their_own(store: Any, session: str) -> None:
    say(store, session, "twice", id="u1")
    chunks = [*turn(call("locate", "c", {"n": 1}), id="a1")[:-1], *turn(call("locate", "c", {"n": 2}), approval("ap", "c"))[1:]]
    record(store, session, chunks)
    u1, a1 = shown(store, session)
    first, second = (place for place, part in enumerate(a1["parts"]) if part["type"] == "tool-locate")
    found = sync(store, session, posted(u1, with_result(approved(a1, at=second), at=first, output="one")))
    assert (found.approvals, found.tool_outputs) == (["ap"], ["c"])
    told = [shown(store, session)[1]["parts"][at]["state"] for at in (first, second)]
    assert told == ["output-available", "approval-responded"]
