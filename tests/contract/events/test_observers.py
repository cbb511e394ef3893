"""store.on_commit: told of every transaction's events, after it has committed."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import InvalidValue
from persist.events.schemas import Event
from tests.contract.chat.scenes import MODEL, create, eventually, record, say, text, turn
from tests.contract.events.scenes import events
from tests.contract.faces import every_way

pytestmark = every_way


class Told:
    """What one observer was told, transaction by transaction."""

    def __init__(self) -> None:
        self.calls: list[list[Event]] = []

    def __call__(self, found: Any) -> None:
        self.calls.append(list(found))

    @property
    def all(self) -> list[Event]:
        return [event for call in self.calls for event in call]


@pytest.fixture
def told(logging_store: Any) -> Told:
    seen = Told()
    logging_store.on_commit(seen)
    return seen


def test_it_is_told_once_for_a_transaction_with_all_its_events(logging_store: Any, told: Told) -> None:
    with logging_store.begin() as tx:
        session = tx.chat.sessions.create(agent="a", model=MODEL).id
        tx.events.append("mine", "noted", 1)
        tx.chat.sessions.archive(session)
        assert told.calls == []
    assert eventually(lambda: len(told.calls) == 1)
    assert told.calls == [events(logging_store)]


def test_a_recorder_tells_of_every_chunk(logging_store: Any, told: Told) -> None:
    session = create(logging_store)
    record(logging_store, session, turn(*text("one ", "two \ud83d", "three")))
    stored = events(logging_store)
    assert eventually(lambda: len(told.all) == len(stored))
    assert told.all == stored


def test_what_was_rolled_back_only_read_or_changed_nothing_is_not_told(logging_store: Any, told: Told) -> None:

    def fail() -> None:
        with logging_store.begin() as tx:
            tx.chat.sessions.create(agent="a", model=MODEL)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with logging_store.begin():
        pass
    logging_store.events.read("*")
    session = create(logging_store)
    assert eventually(lambda: told.calls != [])
    assert [event.stream_id for event in told.all] == [session]


def test_only_the_stores_own_transactions_are_told(logging_store: Any, told: Told, open_store: Callable[..., Any]) -> None:
    create(open_store())
    mine = create(logging_store)
    assert eventually(lambda: told.calls != [])
    assert [event.stream_id for event in told.all] == [mine]
    assert len(events(logging_store)) == 2


def test_one_that_fails_is_logged_and_harms_nobody(logging_store: Any, told: Told, caplog: pytest.LogCaptureFixture) -> None:
    def broken(found: Any) -> None:
        raise ZeroDivisionError

    logging_store.on_commit(broken)
    later = Told()
    logging_store.on_commit(later)
    with caplog.at_level(logging.ERROR, "persist"):
        session = create(logging_store)
        record(logging_store, session, turn(*text("a")))
        assert eventually(lambda: len(later.all) == len(told.all) == len(events(logging_store)))
    assert any(record.exc_info and record.exc_info[0] is ZeroDivisionError for record in caplog.records)


def test_what_is_given_back_removes_it(logging_store: Any) -> None:
    seen, kept = Told(), Told()
    remove = logging_store.on_commit(seen)
    logging_store.on_commit(kept)
    create(logging_store)
    assert eventually(lambda: len(kept.calls) == len(seen.calls) == 1)
    remove()
    remove()
    create(logging_store)
    assert eventually(lambda: len(kept.calls) == 2)
    assert len(seen.calls) == 1


def test_there_is_nothing_to_be_told_of_while_the_log_is_off(store: Any) -> None:
    with pytest.raises(InvalidValue, match="off"):
        store.on_commit(print)
    store.switch_events(True)
    seen = Told()
    store.on_commit(seen)
    create(store)
    assert eventually(lambda: len(seen.calls) == 1)
    store.switch_events(False)
    create(store)
    store.switch_events(True)
    create(store)
    assert eventually(lambda: seen.calls != [] and seen.calls[-1][-1].type == "session.created" and len(seen.calls) > 1)
    assert [event for event in seen.all if event.type != "snapshot"] == [
        event for event in events(store) if event.type != "snapshot"
    ]


def test_trimming_tells_of_the_snapshots_it_writes(logging_store: Any, told: Told) -> None:
    session = create(logging_store)
    say(logging_store, session, "hi")
    with logging_store.begin() as tx:
        tx.events.trim(session, keep=1)
    assert eventually(lambda: len(told.calls) == 3)
    assert [event.type for event in told.calls[-1]] == ["snapshot"]
