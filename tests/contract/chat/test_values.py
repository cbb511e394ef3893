"""The values that parts and metadata can hold: the same on both databases, and the same when they come back."""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound, PayloadTooLarge, PersistError
from persist.settings import Settings
from tests.cases import each
from tests.contract.chat.scenes import MODEL, create, record, say, session_of, shown, text, turn, words
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import HARD_TEXTS
from tests.contract.faces import on_one_face


@on_one_face
@each("hard", [*HARD_TEXTS, ""])
def test_any_text_comes_back_as_it_was(store: Any, hard: str) -> None:
    session = create(store)
    say(store, session, hard, metadata={"note": hard, hard: 1})
    record(store, session, text(hard, hard))
    said, recorded = shown(store, session)
    assert said["parts"] == [{"type": "text", "text": hard}]
    assert said["metadata"] == {"note": hard, hard: 1}
    assert recorded["parts"] == [{"type": "text", "text": hard * 2, "state": "done"}]
    assert json.loads(store.chat.messages.list_json(session)) == [said, recorded]


@each("hard", HARD_TEXTS[:6])
def test_any_text_can_grow_by_any_piece(store: Any, other: Any, hard: str) -> None:
    """Also while it is an unfolded tail."""
    session = create(store)
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        for character in hard:
            recorder.feed({"type": "text-delta", "id": "t", "delta": character})
        assert words(shown(other, session)) == [hard]
    assert words(shown(other, session)) == [hard]


@pytest.mark.parametrize("between", [[], [{"type": "data-x", "data": 1}]], ids=["in the tail", "folded between"])
def test_a_split_character_becomes_whole(store: Any, other: Any, session: str, between: list[Any]) -> None:
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        recorder.feed({"type": "text-delta", "id": "t", "delta": "a\ud83d"})
        assert words(shown(other, session)) == ["a\ud83d"]
        recorder.feed_many(between)
        recorder.feed({"type": "text-delta", "id": "t", "delta": "\ude00b"})
        assert words(shown(other, session)) == ["a😀b"]
    assert shown(other, session)[0]["parts"][0]["text"] == "a😀b"


def test_depth_is_limited(store: Any, session: str) -> None:
    def nested(levels: int) -> Any:
        value: Any = "deep"
        for _ in range(levels):
            value = [value]
        return value

    say(store, session, "x", metadata={"v": nested(199)})
    assert shown(store, session)[0]["metadata"] == {"v": nested(199)}
    for levels in (200, 5000, 100_000):
        with store.begin() as tx, pytest.raises(InvalidValue):
            tx.chat.messages.append(session, role="user", parts=[], metadata={"v": nested(levels)})


def test_size_is_limited_and_the_recorder_goes_on(open_store: Any) -> None:
    store = open_store(settings=Settings(max_json_bytes=1000))
    session = create(store)
    with store.begin() as tx:
        with pytest.raises(PayloadTooLarge) as refused:
            tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "ü" * 600}])
        assert refused.value.limit == 1000
        assert refused.value.size > 1200
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        recorder.feed({"type": "text-delta", "id": "t", "delta": "a" * 800})
        with pytest.raises(PayloadTooLarge):
            recorder.feed({"type": "text-delta", "id": "t", "delta": "b" * 800})
        recorder.feed({"type": "text-delta", "id": "t", "delta": "c"})
    assert words(shown(store, session)) == ["a" * 800 + "c"]


def test_a_naive_clock_is_refused(open_store: Any) -> None:
    store = open_store(clock=lambda: datetime(2026, 1, 1))
    with pytest.raises(InvalidValue), store.begin() as tx:
        tx.chat.sessions.create(agent="build", model=MODEL)


def test_instants_are_utc_cut_to_milliseconds(open_store: Any) -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    store = open_store(clock=lambda: datetime(2026, 1, 2, 8, 34, 5, 678_999, tzinfo=zone))
    found = session_of(store, create(store))
    assert found.created_at == datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    assert found.created_at.utcoffset() == timedelta(0)


# A refused verb has written nothing, and its transaction goes on: also where its statements travel together.


RULE = {"permission": "edit", "pattern": "*", "action": "allow", "source": "session"}
PARTS = [{"type": "text", "text": "hi"}]
COMPACTION = {"type": "data-compaction", "data": {"summary": "s", "tail_start_id": None}}
Call = Callable[[Any, str], Any]
REFUSED: dict[str, tuple[type[PersistError], Call]] = {
    "sessions.create": (Conflict, lambda tx, at: tx.chat.sessions.create(agent="build", model=MODEL, id=at)),
    "sessions.update_metadata": (NotFound, lambda tx, _: tx.chat.sessions.update_metadata("nobody", {"a": 1})),
    "sessions.archive": (NotFound, lambda tx, _: tx.chat.sessions.archive("nobody")),
    "sessions.unarchive": (NotFound, lambda tx, _: tx.chat.sessions.unarchive("nobody")),
    "sessions.delete": (NotFound, lambda tx, _: tx.chat.sessions.delete("nobody")),
    "sessions.add_permission": (NotFound, lambda tx, _: tx.chat.sessions.add_permission("nobody", RULE)),
    "sessions.remove_permission": (NotFound, lambda tx, _: tx.chat.sessions.remove_permission("nobody", RULE)),
    "sessions.fork, no session": (NotFound, lambda tx, _: tx.chat.sessions.fork("nobody", "said")),
    "sessions.fork, no message": (NotFound, lambda tx, at: tx.chat.sessions.fork(at, "nothing")),
    "sessions.rewind, no session": (NotFound, lambda tx, _: tx.chat.sessions.rewind("nobody", "said")),
    "sessions.rewind, no message": (NotFound, lambda tx, at: tx.chat.sessions.rewind(at, "nothing")),
    "sessions.rewind, an answer": (InvalidValue, lambda tx, at: tx.chat.sessions.rewind(at, "answered")),
    "sessions.unrewind": (NotFound, lambda tx, at: tx.chat.sessions.unrewind(at, "nothing")),
    "messages.get": (NotFound, lambda tx, _: tx.chat.messages.get("nothing")),
    "messages.sync": (NotFound, lambda tx, _: tx.chat.messages.sync("nobody", [{"id": "m", "role": "user", "parts": PARTS}])),
    "messages.append": (NotFound, lambda tx, _: tx.chat.messages.append("nobody", role="assistant", parts=[COMPACTION])),
    "messages.update_metadata": (NotFound, lambda tx, _: tx.chat.messages.update_metadata("nothing", {"a": 1})),
    "messages.compact, no session": (
        NotFound,
        lambda tx, _: tx.chat.messages.compact("nobody", summary="s", tail_start_id=None, auto=True, summary_tokens=1),
    ),
    "messages.compact, no message": (
        NotFound,
        lambda tx, at: tx.chat.messages.compact(at, summary="s", tail_start_id="nothing", auto=True, summary_tokens=1),
    ),
    "messages.enqueue, no session": (NotFound, lambda tx, _: tx.chat.messages.enqueue("nobody", parts=[])),
    "messages.enqueue, a taken id": (Conflict, lambda tx, at: tx.chat.messages.enqueue(at, parts=[], id="answered")),
    "messages.claim_queued": (NotFound, lambda tx, _: tx.chat.messages.claim_queued("nobody")),
    "messages.answer_approval": (NotFound, lambda tx, _: tx.chat.messages.answer_approval("nobody", "a", approved=True)),
    "messages.record_step_usage": (
        NotFound,
        lambda tx, _: tx.chat.messages.record_step_usage("nothing", 0, input_tokens=1, output_tokens=1),
    ),
}


def tables(raw: Raw) -> list[Any]:
    return [
        sorted(raw.rows(f"SELECT * FROM {name}"), key=repr)
        for name in ("chat_sessions", "chat_messages", "chat_parts", "chat_step_usage")
    ]


@on_one_face
@each("name", REFUSED)
def test_a_refused_verb_has_written_nothing_and_the_transaction_goes_on(store: Any, raw: Raw, name: str) -> None:
    error, call = REFUSED[name]
    session = create(store)
    say(store, session, "question", id="said")
    say(store, session, "answer", role="assistant", id="answered")
    before = tables(raw)
    with store.begin() as tx, pytest.raises(error):
        call(tx, session)
    assert tables(raw) == before
    with store.begin() as tx:
        with pytest.raises(error):
            call(tx, session)
        kept = tx.chat.messages.append(session, role="user", parts=[])
    assert [message["id"] for message in shown(store, session)] == ["said", "answered", kept.id]
    store.chat.sessions.delete(session)


def test_a_message_id_that_is_taken_is_named(store: Any) -> None:
    session, other = create(store), create(store)
    message = say(store, session, "one")
    for at in (session, other):
        with pytest.raises(Conflict) as refused, store.begin() as tx:
            tx.chat.messages.append(at, role="user", parts=[], id=message)
        assert refused.value.constraint == "pk_chat_messages"
        assert str(refused.value) == f"The id {message!r} is taken by another message."
    assert len(shown(store, session)) == 1


@pytest.mark.parametrize("body", ["You are helpful.", "", "Ü\u2028\U0001f600", "NUL \x00 and more"])
def test_a_prompt_is_named_by_the_sha256_of_its_text(store: Any, raw: Raw, body: str) -> None:
    with store.begin() as tx:
        digest = tx.chat.prompts.put(body)
        assert tx.chat.prompts.put(body) == digest
    assert digest == hashlib.sha256(body.encode()).hexdigest()
    assert store.chat.prompts.get(digest) == body
    assert raw.count("system_prompts") == 1


def test_the_same_prompt_of_two_turns_is_one_row_named_by_both(store: Any, raw: Raw, session: str) -> None:
    for _ in range(2):
        record(store, session, turn(*text("x")), system_prompt="You are helpful.")
    digest = hashlib.sha256(b"You are helpful.").hexdigest()
    assert [message["metadata"] for message in shown(store, session)] == [{"system_prompt_digest": digest}] * 2
    assert raw.rows("SELECT digest, body FROM system_prompts") == [(digest, "You are helpful.")]
