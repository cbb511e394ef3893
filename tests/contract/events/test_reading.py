"""tx.events: reading from a cursor on, and events of one's own."""

from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, PayloadTooLarge, ReadOnlyTransaction
from persist.settings import Settings
from tests.cases import each
from tests.contract.chat.scenes import MODEL, create, say
from tests.contract.events.scenes import assert_gapless, events, kinds
from tests.contract.faces import on_one_face

ANYTHING = [None, True, 0, -(2**63), 2**64 - 1, 0.5, "", "\x00 \ud83d \ufdd0", [], {}, {"changes": 1}, [{"a": [None]}]]


def note(store: Any, stream: str, data: Any = None, kind: str = "noted") -> Any:
    with store.begin() as tx:
        return tx.events.append(stream, kind, data)


# ---------------------------------------------------------------- reading


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


@each(
    "arguments",
    [{"after": -1}, {"after": "1"}, {"after": True}, {"after": 2**63}, {"limit": 0}, {"limit": -1}, {"stream_id": ""}],
    ids=str,
)
def test_reading_refuses(logging_store: Any, arguments: dict[str, Any]) -> None:
    with logging_store.read() as tx, pytest.raises(InvalidValue):
        tx.events.read(**{"stream_id": "*", **arguments})


@each("stream", [None, 1, "a\x00", "\ud83d"], ids=ascii)
def test_a_stream_is_named_by_text(logging_store: Any, stream: Any) -> None:
    with logging_store.begin() as tx:
        with pytest.raises(InvalidValue):
            tx.events.read(stream)
        with pytest.raises(InvalidValue):
            tx.events.append(stream, "noted", None)


# ---------------------------------------------------------------- appending


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
    for kind in ("snapshot", "", None, 7, "a\x00"):
        with pytest.raises(InvalidValue):
            note(logging_store, "mine", kind=kind)  # type: ignore[arg-type]  # what a caller without a checker gives
    assert kinds(logging_store) == ["session.created"]


def test_all_streams_together_are_no_stream_to_append_to(logging_store: Any) -> None:
    with pytest.raises(InvalidValue, match="all streams"):
        note(logging_store, "*")
    assert events(logging_store) == []


@each("data", [object(), (1,), {1: 2}, float("nan"), 2**64, b"x"], ids=["object", "tuple", "key", "nan", "int", "bytes"])
def test_what_is_no_json_is_refused(logging_store: Any, data: Any) -> None:
    with pytest.raises(InvalidValue):
        note(logging_store, "mine", data)
    assert events(logging_store) == []


def test_the_callers_limits_hold(open_store: Any) -> None:
    store = open_store(events=True, settings=Settings(max_json_bytes=1000))
    with pytest.raises(PayloadTooLarge):
        note(store, "mine", "x" * 1000)
    note(store, "mine", "x" * 900)
    assert len(events(store)) == 1


def test_appending_needs_a_log_and_a_transaction_that_writes(store: Any) -> None:
    with pytest.raises(InvalidValue, match="off"):
        note(store, "mine")
    store.switch_events(True)
    with store.read() as tx, pytest.raises(ReadOnlyTransaction):
        tx.events.append("mine", "noted", None)
    assert events(store) == []


def test_an_event_of_ones_own_goes_with_its_transaction(logging_store: Any) -> None:
    session = create(logging_store)

    def fail() -> None:
        with logging_store.begin() as tx:
            tx.events.append("mine", "noted", 1)
            tx.chat.sessions.create(id=session, agent="a", model=MODEL)

    with pytest.raises(Conflict):
        fail()
    assert kinds(logging_store) == ["session.created"]
    assert note(logging_store, "mine").seq == 1


def test_a_stream_with_a_long_name_is_a_stream(logging_store: Any) -> None:
    name = "\U0001f600" * 500
    assert note(logging_store, name).seq == 1
    say(logging_store, create(logging_store), "hi")
    assert [event.stream_id for event in events(logging_store, name)] == [name]
