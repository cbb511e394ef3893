"""Following a running turn from another store: everything that is stored, then everything that comes, and nothing twice."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from persist.chat.reducer import reduce
from persist.errors import InvalidValue, NotFound
from tests.cases import each
from tests.contract.chat.scenes import approval, call, create, output, record, say, shown, step, text, turn
from tests.contract.conftest import Raw
from tests.contract.faces import every_way

pytestmark = [every_way, pytest.mark.usefixtures("notifying")]

Chunk = dict[str, Any]
START = {"type": "start", "messageId": "m"}
OPEN = [START, {"type": "start-step"}, {"type": "text-start", "id": "t"}]


@pytest.fixture
def notifying(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is outside of tests: recorders on Postgres notify followers."""
    monkeypatch.setenv("PERSIST_NOTIFY_FOLLOWERS", "true")


def delta(words: str) -> Chunk:
    return {"type": "text-delta", "id": "t", "delta": words}


def take(chunks: Iterator[Chunk], count: int) -> list[Chunk]:
    return [next(chunks) for _ in range(count)]


def words_of(chunks: list[Chunk]) -> str:
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")


def test_without_a_turn_there_is_nothing_to_follow(store: Any, session: str) -> None:
    record(store, session, turn(*text("done")))
    assert store.chat.sessions.turn(session) is None
    assert list(store.follow(session)) == []


def test_a_running_turn_is_shown(store: Any, clock: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed({"type": "start-step"})
        assert other.chat.sessions.turn(session).message_id == recorder.message_id
        recorder.feed(START)
        found = other.chat.sessions.turn(session)
        assert (found.session_id, found.started_at, found.stop_requested) == (session, clock(), False)
        recorder.feed({"type": "finish"})
        assert other.chat.sessions.turn(session) is None
    with pytest.raises(NotFound):
        store.chat.sessions.turn("nowhere")


def test_a_follower_gets_what_is_stored_and_then_what_comes(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([*OPEN, delta("Once "), delta("upon ")])
        chunks = iter(other.follow(session))
        assert take(chunks, 4) == [
            {"type": "start", "messageId": "m"},
            {"type": "start-step"},
            {"type": "text-start", "id": "1"},
            {"type": "text-delta", "id": "1", "delta": "Once upon "},
        ]
        recorder.feed(delta("a time"))
        assert next(chunks) == {"type": "text-delta", "id": "1", "delta": "a time"}
        recorder.feed_many([{"type": "text-end", "id": "t"}, {"type": "finish-step"}, {"type": "finish"}])
    assert list(chunks) == [{"type": "text-end", "id": "1"}, {"type": "finish-step"}, {"type": "finish"}]


def test_what_was_followed_is_what_is_stored(store: Any, other: Any, session: str) -> None:
    followed: list[Chunk] = []
    with store.record(session, metadata={"kind": "test"}) as recorder:
        recorder.feed_many([START, {"type": "start-step"}])
        chunks = iter(other.follow(session))
        followed.append(next(chunks))
        for number in range(40):
            for chunk in step(*text(f"{number} ", "words", id=f"t{number}")):
                recorder.feed(chunk)
        recorder.feed({"type": "finish"})
    followed += list(chunks)
    message = reduce(followed)
    assert [message] == [{**stored, "id": "m"} for stored in shown(other, session)]


def test_a_cursor_goes_on_without_a_gap_and_without_a_repetition(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([*OPEN, delta("one ")])
        follower = other.follow(session)
        assert follower.cursor is None
        given = take(iter(follower), 4)
        cursor = follower.cursor
        recorder.feed(delta("two "))
        again = store.follow(session, cursor)
        assert again.cursor == cursor
        given += take(iter(again), 1)
        recorder.feed_many([delta("three"), {"type": "text-end", "id": "t"}, {"type": "finish"}])
    given += list(other.follow(session, again.cursor))
    assert words_of(given) == "one two three"
    assert [chunk["type"] for chunk in given].count("start") == 1
    assert list(other.follow(session, other_end(other, session, again.cursor))) == []


def test_every_cursor_of_a_dead_recorders_answer_goes_on_with_the_next_one(
    store: Any, other: Any, raw: Raw, session: str
) -> None:
    dead = store.record(session)
    dead.__enter__()
    dead.feed_many([*OPEN, delta("one \ud83d")])
    raw.rows("UPDATE chat_turns SET owner = 'another.host/1/nonce', seen_at = 0")
    follower, given = other.follow(session, other.chat.messages.cursor(session, "m")), []
    assert [chunk["type"] for chunk in follower] == ["abort"]
    cursors = [follower.cursor]
    with store.record(session) as recorder:
        recorder.feed_many([START, {"type": "text-start", "id": "t"}, delta("\ude00 two")])
        follower = other.follow(session, cursors[0])
        chunks = iter(follower)
        given.append(next(chunks))
        cursors.append(follower.cursor)
        recorder.feed_many([{"type": "text-end", "id": "t"}, {"type": "finish-step"}, {"type": "finish"}])
    for chunk in chunks:
        given.append(chunk)
        cursors.append(follower.cursor)
    assert words_of(given) == "\U0001f600 two"
    assert [chunk["type"] for chunk in given] == ["text-delta", "text-end", "finish-step", "finish"]
    for place, cursor in enumerate(cursors):
        assert list(other.follow(session, cursor)) == given[place:]


def other_end(store: Any, session: str, cursor: str) -> str:
    """The cursor at the end of the message."""
    follower = store.follow(session, cursor)
    for _ in follower:
        pass
    found: str = follower.cursor
    return found


def test_a_client_that_has_a_message_is_given_only_what_continues_it(store: Any, other: Any, session: str) -> None:
    """As useChat is, which posts an answer to an approval and has the rest of the message already."""
    record(store, session, turn(*text("May I?"), call("mail", "c", {"to": "ada"}), approval("a", "c"), id="m"))
    assert store.chat.messages.answer_approval(session, "a", approved=True)
    had = store.chat.messages.replay("m")[:-2]  # without the end of the step and of the stream
    cursor = other.chat.messages.cursor(session, "m")
    with store.record(session) as recorder:
        recorder.feed(START)
        follower = iter(other.follow(session, cursor))
        recorder.feed_many([output("c", "sent"), *step(*text("It ", "is sent."))])
        came = [next(follower)]
        recorder.feed({"type": "finish"})
    came += list(follower)
    assert [chunk["type"] for chunk in came] == [
        *("tool-output-available", "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish")
    ]
    assert [reduce([*had, *came])] == shown(other, session)


def test_an_answer_that_ends_before_its_follower_looks_is_given_whole(store: Any, other: Any, session: str) -> None:
    """By a host that takes the cursor when the answer begins, and follows a moment later."""
    with store.record(session) as recorder:
        recorder.feed(START)
        cursor = other.chat.messages.cursor(session, "m")
        waiting = other.follow(session, cursor)
        assert waiting.cursor == cursor
        recorder.feed_many([*step(*text("At ", "once.")), {"type": "finish"}])
    for came in (list(waiting), list(other.follow(session, cursor))):
        assert came[0] == START
        assert [reduce(came)] == shown(other, session)


@each("last", ["error", "abort"])
def test_an_answer_that_ends_without_a_part_is_told_to_its_follower(store: Any, other: Any, last: str) -> None:
    session = create(store)
    with store.record(session) as recorder:
        recorder.feed(START)
        cursor = other.chat.messages.cursor(session, "m")
        recorder.feed({"type": "error", "errorText": "no"} if last == "error" else {"type": "abort"})
    assert [chunk["type"] for chunk in other.follow(session, cursor)] == [last]
    assert shown(other, session) == []


def test_a_cursor_is_of_an_answer_that_is_shown(store: Any, session: str) -> None:
    question = say(store, session, "hello")
    record(store, session, turn(*text("hi"), id="m"))
    for id, message in ((session, question), (session, "nothing"), (create(store), "m")):
        with pytest.raises(NotFound):
            store.chat.messages.cursor(id, message)
    store.chat.sessions.rewind(session, question)
    with pytest.raises(NotFound):
        store.chat.messages.cursor(session, "m")


def test_the_rest_of_a_message_is_given_after_its_turn_ended(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([*OPEN, delta("begun ")])
        follower = store.follow(session)
        take(iter(follower), 4)
        cursor = follower.cursor
        recorder.feed_many([delta("and ended"), {"type": "text-end", "id": "t"}, {"type": "finish"}])
    record(store, session, turn(*text("another answer")))
    rest = list(store.follow(session, cursor))
    assert words_of(rest) == "and ended"
    assert rest[-1] == {"type": "finish"}


@each(("end", "last"), [("error", "error"), ("abort", "abort"), ("close", "finish"), ("rewind", "abort")])
def test_a_follower_ends_with_its_turn(store: Any, other: Any, end: str, last: str) -> None:
    session = create(store)
    question = say(store, session, "?")
    recorder = store.record(session)
    recorder.__enter__()
    recorder.feed_many([*OPEN, delta("half")])
    chunks = iter(other.follow(session))
    take(chunks, 4)
    if end == "error":
        recorder.feed({"type": "error", "errorText": "no more tokens"})
    elif end == "abort":
        recorder.feed({"type": "abort"})
    elif end == "close":
        recorder.close()
    else:
        store.chat.sessions.rewind(session, question)
    assert list(chunks)[-1]["type"] == last
    recorder.close()
    store.chat.sessions.delete(session)


def test_a_follower_sees_a_message_of_its_own_session_only(store: Any, session: str) -> None:
    elsewhere = create(store)
    with store.record(session) as recorder:
        recorder.feed_many([*OPEN, delta("secret")])
        follower = store.follow(session)
        take(iter(follower), 1)
        with pytest.raises(NotFound):
            list(store.follow(elsewhere, follower.cursor))
    for bad in ("?", "", 7):
        with pytest.raises(InvalidValue):
            store.follow(session, bad)
    with pytest.raises(InvalidValue):
        store.follow(session, ai_sdk=5)
    with pytest.raises(NotFound):
        list(store.follow("nowhere"))


def test_a_deleted_session_ends_its_followers(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([*OPEN, delta("gone")])
        chunks = iter(other.follow(session))
        take(chunks, 4)
        store.chat.sessions.delete(session)
        assert list(chunks) == [{"type": "abort"}]


def test_many_follow_one_turn(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([*OPEN, delta("a")])
        followers = [iter((store, other)[number % 2].follow(session)) for number in range(8)]
        given = [take(chunks, 4) for chunks in followers]
        threads = [threading.Thread(target=into.extend, args=(chunks,)) for into, chunks in zip(given, followers, strict=True)]
        for thread in threads:
            thread.start()
        for _ in range(30):
            recorder.feed(delta("b"))
        recorder.feed({"type": "finish"})
    for thread in threads:
        thread.join(60)
    assert [words_of(chunks) for chunks in given] == ["a" + "b" * 30] * len(given)


def test_closing_the_store_ends_its_followers(store: Any, open_store: Any, session: str) -> None:
    ending = open_store()
    given: list[Chunk] = []
    with store.record(session) as recorder:
        recorder.feed_many([*OPEN, delta("a")])
        thread = threading.Thread(target=lambda: given.extend(ending.follow(session)))
        thread.start()
        while not given and thread.is_alive() and ending.chat.sessions.turn(session) is None:
            pass
        ending.close()
        thread.join(60)
        assert not thread.is_alive()


def test_a_part_that_another_program_spoilt_is_left_out(store: Any, other: Any, raw: Raw, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([START, *text("lost", id="a"), *text("kept", id="b")])
        raw.rows("UPDATE chat_parts SET data_json = '[]' WHERE \"index\" = 0")
        chunks = take(iter(other.follow(session)), 4)
        assert words_of(chunks) == "kept"


def test_what_an_empty_piece_brought_is_followed_though_its_part_never_ends(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([START, {"type": "text-start", "id": "t", "providerMetadata": {"p": {"signature": "old"}}}])
        chunks = iter(other.follow(session))
        followed = take(chunks, 2)
        recorder.feed({**delta(""), "providerMetadata": {"p": {"signature": "new"}}})
        recorder.feed({"type": "error", "errorText": "no more tokens"})
    followed += list(chunks)
    assert [reduce(followed)["parts"]] == [message["parts"] for message in shown(other, session)]


def test_a_text_of_an_earlier_step_is_told_before_the_reset_that_closes_it(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([*OPEN, delta("half \ud83d"), {"type": "finish-step"}, {"type": "start-step"}])
        recorder.feed_many([{"type": "text-start", "id": "u"}, {"type": "text-delta", "id": "u", "delta": "bad"}])
        chunks = iter(other.follow(session))
        followed = take(chunks, 7)
        recorder.feed_many([{"type": "reset-step"}, {"type": "finish-step"}, {"type": "finish"}])
    followed += list(chunks)
    assert [reduce(followed)["parts"]] == [message["parts"] for message in shown(other, session)]
