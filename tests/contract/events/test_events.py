"""One event for each verb and stream, in the transaction of the change, numbered without a gap; and how events are read."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound, TransactionAborted
from persist.events.schemas import Event
from persist.settings import Settings
from tests.cases import each
from tests.contract.chat.scenes import MODEL, create, record, say, text, turn
from tests.contract.conftest import Raw
from tests.contract.events.scenes import assert_gapless, events, kinds, rows_of
from tests.contract.faces import on_one_face

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


ANYTHING = [None, True, 0, -(2**63), 2**64 - 1, 0.5, "", "\x00 \ud83d \ufdd0", [], {}, {"changes": 1}, [{"a": [None]}]]


def note(store: Any, stream: str, data: Any = None, kind: str = "noted") -> Any:
    with store.begin() as tx:
        return tx.events.append(stream, kind, data)


def test_a_stream_is_read_from_its_number_and_everything_from_a_position(logging_store: Any) -> None:
    for number in range(6):
        note(logging_store, "even" if number % 2 == 0 else "odd", number)
    assert [event.data for event in events(logging_store)] == [0, 1, 2, 3, 4, 5]
    assert [event.data for event in events(logging_store, after=4)] == [4, 5]
    assert [event.data for event in events(logging_store, "odd", after=1)] == [3, 5]
    assert [event.data for event in events(logging_store, "even", after=1, limit=1)] == [2]
    assert events(logging_store, "even", limit=2**63 - 1) == events(logging_store, "even")
    assert events(logging_store, "even", after=3) == events(logging_store, "unknown") == events(logging_store, after=2**62) == []


def test_pages_put_together_are_the_whole(logging_store: Any) -> None:
    for number in range(7):
        note(logging_store, "mine", number)
    pages, after = [], 0
    while page := events(logging_store, limit=3, after=after):
        pages.append(page)
        after = page[-1].position
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [event for page in pages for event in page] == events(logging_store)


def test_a_snapshot_of_the_database_does_not_see_later_events(logging_store: Any, open_store: Any) -> None:
    note(logging_store, "mine", 1)
    other = open_store()
    with other.read() as tx:
        before = tx.events.read("*")
        note(logging_store, "mine", 2)
        assert tx.events.read("*") == before
    assert len(events(other)) == 2


@on_one_face
@each("data", ANYTHING, ids=ascii)
def test_any_json_is_kept(logging_store: Any, data: Any) -> None:
    given = note(logging_store, "mine", data)
    assert given.data == data
    assert type(given.data) is type(data)
    assert events(logging_store, "mine")[-1:] == [given]


def test_it_is_numbered_at_once_among_the_verbs_around_it(logging_store: Any) -> None:
    with logging_store.begin() as tx:
        session = tx.chat.sessions.create(agent="a", model=MODEL).id
        first = tx.events.append(session, "mine", 1)
        tx.chat.sessions.archive(session)
        second = tx.events.append("other", "mine", 2)
        assert ((first.position, first.seq), (second.position, second.seq)) == ((2, 2), (4, 1))
        assert [event.position for event in tx.events.read("*")] == [1, 2, 3, 4]
    found = events(logging_store)
    assert_gapless(found)
    assert [event.type for event in found] == ["session.created", "mine", "session.archived", "mine"]
    assert [found[1], found[3]] == [first, second]


def test_a_type_may_be_any_word_but_the_logs_own(logging_store: Any) -> None:
    note(logging_store, "mine", kind="session.created")
    with pytest.raises(InvalidValue):
        note(logging_store, "mine", kind="snapshot")
    assert kinds(logging_store) == ["session.created"]


def test_all_streams_together_are_no_stream_to_append_to(logging_store: Any) -> None:
    with pytest.raises(InvalidValue, match="all streams"):
        note(logging_store, "*")
    assert events(logging_store) == []


def test_appending_needs_a_log(store: Any) -> None:
    with pytest.raises(InvalidValue, match="off"):
        note(store, "mine")
    assert events(store) == []


def test_a_stream_with_a_long_name_is_a_stream(logging_store: Any) -> None:
    name = "\U0001f600" * 500
    assert note(logging_store, name).seq == 1
    say(logging_store, create(logging_store), "hi")
    assert [event.stream_id for event in events(logging_store, name)] == [name]
