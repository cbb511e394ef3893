"""What a browser asks is taken in: new and edited questions, and answers that are to be given again."""

from typing import Any

from tests.cases import each
from tests.contract.chat.posts import (
    changed,
    posted,
    sync,
    talk,
    unchanged,
    user,
)
from tests.contract.chat.scenes import create, record, rollup, say, session_of, shown, text, turn, words
from tests.contract.conftest import Raw

# ---------------------------------------------------------------- questions


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


def test_a_question_may_have_files_and_data(store: Any, session: str) -> None:
    parts = [
        {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": "data:image/png;base64,AA=="},
        {"type": "text", "text": "what is this", "providerMetadata": {"anthropic": {"cacheControl": {"type": "ephemeral"}}}},
        {"type": "data-place", "id": "d", "data": {"lat": 1.5}},
    ]
    question = {"id": "u", "role": "user", "parts": parts}
    sync(store, session, posted(question))
    assert shown(store, session) == [question]


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


# ---------------------------------------------------------------- an edited question


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
    with store.begin() as tx:
        assert tx.chat.sessions.unrewind(session, "u2") == 1


def test_an_edit_without_a_trigger_is_an_edit(store: Any, session: str) -> None:
    talk(store, session)
    assert dict(sync(store, session, posted(user("u1", "else")))) == changed(edited=["u1"], hidden=["a1", "u2", "a2"])
    assert words(shown(store, session)) == ["else"]


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
    with store.begin() as tx:
        tx.chat.messages.update_metadata("u1", {"topic": "greeting", "from": "desk"})
    stored = shown(store, session)
    answer = stored[1]
    assert dict(sync(store, session, posted(question, answer), trigger="submit-message")) == unchanged(continues="a1")
    assert shown(store, session) == stored


def test_numbers_that_a_browser_writes_otherwise_are_no_edit(store: Any, session: str) -> None:
    data = {"whole": 1.0, "large": 2**63 + 1, "minus": -0.0, "text": "a\ud83d", "half": 0.5}
    with store.begin() as tx:
        tx.chat.messages.append(session, role="user", parts=[{"type": "data-x", "data": data}], id="u1")
    browsers = {**data, "whole": 1, "large": 9223372036854776000, "minus": 0}
    question = {"id": "u1", "role": "user", "parts": [{"type": "data-x", "data": browsers}]}
    assert dict(sync(store, session, [question])) == unchanged()


# ---------------------------------------------------------------- to answer again


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
    with store.begin() as tx:
        tx.chat.sessions.unrewind(session, "u2")
    assert rollup(store, session) == (30, 3, 0, 0, 0, 33)


def test_a_compaction_that_is_taken_back_is_no_boundary(store: Any, session: str) -> None:
    history = talk(store, session)
    with store.begin() as tx:
        tx.chat.messages.record_step_usage("a1", 0, input_tokens=10, output_tokens=1)
        tx.chat.messages.record_step_usage("a2", 0, input_tokens=20, output_tokens=2)
        marker = tx.chat.messages.compact(session, summary="s", tail_start_id="u2", auto=False, summary_tokens=5).id
    assert rollup(store, session)[0] == 25
    found = sync(store, session, posted(*history[:3]), trigger="regenerate-message")
    assert found.hidden == ["a2", marker]
    assert rollup(store, session) == (10, 1, 0, 0, 0, 11)
