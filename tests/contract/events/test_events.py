"""One event for each verb and stream, in the transaction of the change, numbered without a gap."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from persist.errors import Conflict, NotFound, TransactionAborted
from persist.events.schemas import Event
from persist.settings import Settings
from tests.cases import each
from tests.contract.chat.scenes import MODEL, create, record, say, text, turn
from tests.contract.conftest import Raw
from tests.contract.events.scenes import assert_gapless, events, kinds, rows_of

HARD = "\x00 \ud83d é \ufdd0"


def test_a_verb_is_one_event_of_its_stream(logging_store: Any, clock: Any) -> None:
    session = create(logging_store)
    clock.advance(seconds=5)
    say(logging_store, session, "hi")
    created, appended = events(logging_store, session)
    assert (created.type, created.seq, created.position) == ("session.created", 1, 1)
    assert (appended.type, appended.seq, appended.position) == ("message.appended", 2, 2)
    assert appended.at == clock()
    assert (appended.at - created.at).total_seconds() == 5
    assert {change["table"] for change in appended.data["changes"]} >= {"chat_messages", "chat_parts", "chat_sessions"}
    assert appended.data["v"] == 1


def test_the_verbs_of_a_transaction_are_events_of_their_own_in_their_order(logging_store: Any) -> None:
    with logging_store.begin() as tx:
        one = tx.chat.sessions.create(agent="a", model=MODEL).id
        run = tx.workflows.runs.create("build", trigger_id="t", current_phase="plan").id
        tx.chat.messages.append(one, role="user", parts=[{"type": "text", "text": "hi"}])
        tx.chat.sessions.archive(one)
    found = events(logging_store)
    assert_gapless(found)
    assert [(event.stream_id, event.type) for event in found] == [
        (one, "session.created"),
        (f"workflow:{run}", "run.created"),
        (one, "message.appended"),
        (one, "session.archived"),
    ]


def test_a_verb_that_touches_two_streams_is_an_event_of_each(logging_store: Any) -> None:
    session = create(logging_store)
    first = say(logging_store, session, "hi")
    with logging_store.begin() as tx:
        fork = tx.chat.sessions.fork(session, first).id
    found = [event for event in events(logging_store) if event.type == "session.forked"]
    assert fork in {event.stream_id for event in found}
    assert len({event.stream_id for event in found}) == len(found)
    assert_gapless(events(logging_store))


def test_a_verb_that_changes_nothing_is_no_event(logging_store: Any) -> None:
    session = create(logging_store)
    before = events(logging_store)
    with logging_store.begin() as tx:
        tx.chat.prompts.put("again")
    with logging_store.begin() as tx:
        tx.chat.prompts.put("again")
        tx.chat.sessions.get(session)
    assert [(event.stream_id, event.type) for event in events(logging_store)[len(before) :]] == [("chat", "prompt.stored")]


def test_what_was_rolled_back_is_no_event_and_takes_no_number(logging_store: Any) -> None:
    session = create(logging_store)

    def fail() -> None:
        with logging_store.begin() as tx:
            tx.chat.messages.append(session, role="user", parts=[])
            tx.events.append("mine", "noted", None)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    say(logging_store, session, "kept")
    found = events(logging_store)
    assert_gapless(found)
    assert [event.type for event in found] == ["session.created", "message.appended"]


def test_a_refused_verb_is_no_event_and_its_transaction_goes_on(logging_store: Any) -> None:
    session = create(logging_store)
    with logging_store.begin() as tx:
        tx.chat.messages.append(session, role="user", parts=[])
        with pytest.raises(NotFound):
            tx.chat.messages.append("nobody", role="user", parts=[])
        tx.chat.sessions.archive(session)
    assert kinds(logging_store) == ["session.created", "message.appended", "session.archived"]


def test_a_transaction_that_the_database_doomed_leaves_no_event(logging_store: Any) -> None:
    session = create(logging_store)
    with logging_store.begin() as tx:
        taken = tx.chat.messages.append(session, role="user", parts=[]).id
    before = kinds(logging_store)

    def go_on() -> None:
        with logging_store.begin() as tx:
            tx.chat.sessions.create(agent="a", model=MODEL)
            with pytest.raises(Conflict):
                tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "more"}], id=taken)

    with pytest.raises(TransactionAborted):
        go_on()
    assert kinds(logging_store) == before


def test_an_event_holds_the_rows_as_they_were_stored(logging_store: Any, raw_of: Callable[[], Raw]) -> None:
    session = create(logging_store, metadata={"note": HARD, "numbers": [0.5, 1e300, -(2**63), 2**64 - 1]})
    (event,) = events(logging_store)
    (row,) = rows_of([event], "chat_sessions")
    assert row["metadata_json"] == {"note": HARD, "numbers": [0.5, 1e300, -(2**63), 2**64 - 1]}
    assert row["id"] == session
    raw = raw_of()
    assert row["created_at"] == int(event.at.timestamp() * 1000)
    assert raw.value("SELECT created_at FROM chat_sessions") == row["created_at"]


def test_what_nests_as_deep_as_it_may_is_logged(open_store: Callable[..., Any]) -> None:
    deep: Any = "bottom"
    for _ in range(249):
        deep = {"a": deep}
    store = open_store(events=True, settings=Settings(max_json_depth=250))
    create(store, metadata={"deep": deep})
    assert rows_of(events(store), "chat_sessions")[0]["metadata_json"] == {"deep": deep}


def test_the_data_of_an_event_is_plain_json(logging_store: Any) -> None:
    session = create(logging_store)
    record(logging_store, session, turn(*text("a", HARD)))
    with logging_store.begin() as tx:
        tx.conversations.sessions.create(id="c")
        tx.conversations.branches.create("c", id="b")
        tx.conversations.messages.record(
            "b", {"id": "m", "created_at": 1.5, "role": "user", "content": HARD, "embedding": [0.25, -1.5]}
        )
    for event in events(logging_store):
        assert json.loads(json.dumps(event.data)) == event.data


@each("pieces", [("one ", "two ", "three"), (HARD, "\ud83d", "\x00"), ('"', "\\", "\n\x1f\u2028")])
def test_a_recorded_turn_tells_of_every_chunk_in_order(logging_store: Any, pieces: tuple[str, ...]) -> None:
    session = create(logging_store)
    before = len(events(logging_store))
    record(logging_store, session, turn(*text(*pieces)))
    found = events(logging_store)[before:]
    assert_gapless(events(logging_store))
    assert {event.stream_id for event in found} == {session}
    assert found[0].type == "turn.started"
    assert found[-1].type == "message.finished"
    deltas = [event for event in found if event.type == "part.delta"]
    assert texts(deltas) == list(pieces)


@pytest.mark.parametrize("options", [{"fold_bytes": 8}, {"fold_bytes": 10**6}], ids=["folded often", "never folded"])
def test_no_piece_is_missing_however_the_text_is_kept(open_store: Callable[..., Any], options: dict[str, int]) -> None:
    store = open_store(events=True, settings=Settings(**options))
    session = create(store)
    pieces = [f"{number} " for number in range(40)]
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
        for piece in pieces:
            recorder.feed({"type": "text-delta", "id": "t", "delta": piece})
        assert texts(events(store, session)) == pieces


def texts(found: list[Event]) -> list[str]:
    """The text of their pieces, with what the database stores escaped undone."""
    return [row["delta"] for row in rows_of(found, "chat_part_deltas")]


def test_the_writers_of_several_stores_share_one_count(logging_store: Any, open_store: Callable[..., Any]) -> None:
    session = create(logging_store)
    stores = [logging_store, open_store(), open_store()]
    for number in range(12):
        say(stores[number % 3], session, str(number))
        create(stores[(number + 1) % 3])
    found = events(logging_store)
    assert_gapless(found)
    assert [row["data_json"]["text"] for row in rows_of(events(logging_store, session), "chat_parts")] == [*map(str, range(12))]


def test_the_instant_of_an_event_is_the_stores_clock(open_store: Callable[..., Any], database_url: str) -> None:
    at = datetime(2001, 2, 3, 4, 5, 6, 789_999, tzinfo=UTC)
    store = open_store(events=True, clock=lambda: at)
    create(store)
    assert [event.at for event in events(store)] == [at.replace(microsecond=789_000)]


def test_what_opening_and_closing_settle_is_told_apart_from_what_was_done(open_store: Callable[..., Any]) -> None:
    """Moving text from where it is fast to where it is published changes nothing that happened."""
    store = open_store(events=True)
    session = create(store)
    with store.begin() as tx:
        tx.conversations.sessions.create(id="c")
        tx.conversations.branches.create("c", id="b")
        tx.conversations.messages.record("b", {"id": "m", "created_at": 1.5, "role": "user", "content": "x"})
    recorder = store.record(session)
    recorder.__enter__()
    recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
    recorder.feed({"type": "text-delta", "id": "t", "delta": "a"})
    recorder.feed({"type": "text-delta", "id": "t", "delta": "b"})
    before = len(events(store))
    store.close()
    later = events(open_store())[before:]
    assert {change["table"] for event in later for change in event.data["changes"]} == {"chat_turns"}
