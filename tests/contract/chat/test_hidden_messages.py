"""A message that a rewind hid is not recorded any further: nobody would see what is added, and nobody would be told."""

from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import Closed, Conflict
from persist.settings import Settings
from tests.contract.chat.scenes import call, output, record, say, shown, step, text, turn, words
from tests.contract.conftest import Raw

TABLES = ("chat_messages", "chat_parts", "chat_part_deltas", "chat_turns")


def start(id: str) -> dict[str, Any]:
    return {"type": "start", "messageId": id}


def rewind(store: Any, session: str, to: str) -> int:
    return int(store.chat.sessions.rewind(session, to))


def stored(raw: Raw) -> list[Any]:
    return [sorted(map(str, raw.rows(f"SELECT * FROM {table}"))) for table in TABLES]


@pytest.fixture
def store(open_store: Callable[..., Any]) -> Any:
    """No recorder folds by the clock: on a busy machine a fold would find the turn ended before the next chunk does."""
    return open_store(settings=Settings(fold_ms=3_600_000))


@pytest.fixture
def question(store: Any, session: str) -> str:
    return say(store, session, "u1")


@pytest.mark.parametrize("policy", ["chunk", "step", "turn"])
@pytest.mark.parametrize("takeover", [False, True])
def test_resuming_it_is_a_conflict(store: Any, raw: Raw, session: str, question: str, policy: str, takeover: bool) -> None:
    record(store, session, turn(*text("hidden"), id="m"))
    rewind(store, session, question)
    before = stored(raw)
    with store.record(session, save_on=policy, takeover=takeover) as recorder:
        with pytest.raises(Conflict) as refused:
            recorder.feed(start("m"))
        assert refused.value.constraint == "chat_messages"
        assert stored(raw) == before
        recorder.feed_many(turn(*text("another"), id="n"))
    assert words(shown(store, session)) == ["u1", "another"]
    store.chat.sessions.unrewind(session, question)
    record(store, session, [start("m"), *text(", and more")])
    assert words(shown(store, session)) == ["u1", "hidden, and more", "another"]


def test_turning_to_it_in_a_turn_is_a_conflict(store: Any, session: str, question: str) -> None:
    record(store, session, turn(*text("hidden"), id="m"))
    rewind(store, session, question)
    with store.record(session) as recorder:
        recorder.feed_many([start("n"), *text("one")])
        with pytest.raises(Conflict):
            recorder.feed(start("m"))
        recorder.feed_many(text(", two"))
    assert words(shown(store, session)) == ["u1", "one, two"]


@pytest.mark.parametrize("again", [[start("m")], []], ids=["named again", "without a start"])
def test_going_on_after_its_finish_is_a_conflict(store: Any, raw: Raw, session: str, question: str, again: list[Any]) -> None:
    with store.record(session) as recorder:
        recorder.feed_many(turn(*text("hidden"), id="m"))
        rewind(store, session, question)
        before = stored(raw)
        with pytest.raises(Conflict):
            recorder.feed_many([*again, *text("late")])
        assert stored(raw) == before
        recorder.feed_many(turn(*text("another"), id="n"))
    assert words(shown(store, session)) == ["u1", "another"]


LATER = [
    {"type": "text-delta", "id": "t", "delta": "late"},
    {"type": "text-end", "id": "t"},
    {"type": "finish"},
    {"type": "abort"},
]


@pytest.mark.parametrize("late", LATER, ids=lambda chunk: chunk["type"])
@pytest.mark.parametrize("named", [True, False], ids=["named", "minted"])
def test_a_rewind_ends_the_turn_whose_message_it_hides(
    store: Any, other: Any, raw: Raw, session: str, question: str, late: dict[str, Any], named: bool
) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([start("m") if named else {"type": "start"}, *text("hidden")[:-1]])
        assert rewind(other, session, question) == 1
        before = stored(raw)
        assert raw.count("chat_turns") == 0
        with pytest.raises(Conflict, match="rewind") as refused:
            recorder.feed(late)
        assert refused.value.constraint == "chat_turns"
        assert stored(raw) == before
        with pytest.raises(Closed):
            recorder.feed(late)
    record(store, session, turn(*text("another")))
    assert words(shown(store, session)) == ["u1", "another"]


def test_what_waits_in_memory_is_refused_too(store: Any, session: str, question: str) -> None:
    def recorded() -> None:
        with store.record(session, save_on="turn") as recorder:
            recorder.feed_many([start("m"), *text("one"), {"type": "finish"}])
            recorder.feed_many([start("m"), *text("two")])
            rewind(store, session, question)

    with pytest.raises(Conflict):
        recorded()
    assert words(shown(store, session, include_hidden=True)) == ["u1", "one"]


def test_after_an_error_what_it_says_of_the_session_stays(store: Any, raw: Raw, session: str, question: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([start("m"), *text("hidden"), {"type": "error", "errorText": "overloaded"}])
        rewind(store, session, question)
        with pytest.raises(Conflict, match="rewind"):
            recorder.feed_many(text("late"))
    assert raw.rows("SELECT state FROM chat_turns") == [("error",)]
    record(store, session, turn(*text("another")))
    assert words(shown(store, session)) == ["u1", "another"]


def test_a_rewind_that_hides_other_messages_leaves_the_turn_alone(store: Any, session: str, question: str) -> None:
    """As a host does that answers again: the old answer goes, the new one is on its way."""
    record(store, session, turn(*text("old"), id="m"))
    with store.record(session) as recorder:
        recorder.feed(start("n"))
        assert rewind(store, session, question) == 1
        recorder.feed_many([*text("new"), {"type": "finish"}])
    assert words(shown(store, session)) == ["u1", "new"]


@pytest.mark.parametrize("policy", ["chunk", "step", "turn"])
def test_a_rewind_ends_the_turn_whose_question_it_hides(store: Any, session: str, question: str, policy: str) -> None:
    record(store, session, turn(*text("first"), id="m"))
    say(store, session, "u2")

    def recorded() -> None:
        with store.record(session, save_on=policy) as recorder:
            recorder.feed(start("n"))  # stores no message yet
            assert rewind(store, session, question) == 2
            recorder.feed_many([*text("an answer to u2"), {"type": "finish"}])

    with pytest.raises(Conflict):
        recorded()
    assert words(shown(store, session)) == ["u1"]


def test_the_turn_goes_with_the_message_it_came_to(store: Any, session: str, question: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([start("m"), *text("first"), start("n"), *text("second")[:-1]])
        later = say(store, session, "u2")
        rewind(store, session, later)  # hides nothing
        recorder.feed({"type": "text-delta", "id": "t", "delta": "!"})
        rewind(store, session, question)
        with pytest.raises(Conflict):
            recorder.feed({"type": "text-end", "id": "t"})
    assert words(shown(store, session)) == ["u1"]
    assert words(shown(store, session, include_hidden=True)) == ["u1", "first", "second!", "u2"]


def test_the_result_of_a_call_in_it_is_refused(store: Any, raw: Raw, session: str, question: str) -> None:
    record(store, session, step(call("bash", "c")))
    with store.record(session) as recorder:
        recorder.feed_many([start("n"), {**output("c", 1), "preliminary": True}])  # the call is in the earlier message
        assert rewind(store, session, question) == 1
        before = stored(raw)
        with pytest.raises(Conflict) as refused:
            recorder.feed(output("c", 2))
        assert refused.value.constraint == "chat_messages"
        assert stored(raw) == before
        recorder.feed_many([*text("another"), {"type": "finish"}])
    assert words(shown(store, session)) == ["u1", "another"]
