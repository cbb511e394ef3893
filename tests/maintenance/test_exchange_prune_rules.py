"""What the exchange gives up, and what it keeps however old it is."""

from collections.abc import Iterator
from typing import Any

import pytest

from persist import Store
from persist.maintenance import prune
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.contract.conversations import making as talk
from tests.maintenance.pruning_scenes import DAY, age, month_old
from tests.schema.places import Place


@pytest.fixture
def store(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    with Store.open(database_url, clock=clock) as store:
        yield store


def sent(store: Store, recipient: str | None, content: str, **fields: Any) -> str:
    with store.begin() as tx:
        return tx.conversations.exchange.send(sender="a", recipient=recipient, content=content, **fields).id


def read_by(store: Store, owner: str, *ids: str) -> None:
    with store.begin() as tx:
        for id in ids:
            assert tx.conversations.exchange.mark_read(owner, id)


def in_outbox(store: Store) -> list[Any]:
    with store.read() as tx:
        return [one.content for one in tx.conversations.exchange.outbox("a").items]


def test_what_was_sent_and_read_goes_by_age_and_what_was_not_read_waits(store: Store, clock: FrozenClock) -> None:
    read_by(store, "b", sent(store, "b", "read"), sent(store, "b", "read in a channel", channel="c"))
    sent(store, "b", "unread")
    read_by(store, "x", sent(store, "x", "others have read what came to them"))
    age(clock)
    read_by(store, "b", sent(store, "b", "new", channel="d"))
    went = prune(store, "exchange_items", older_than=30 * DAY, dry_run=True).tables
    assert in_outbox(store) == ["read", "read in a channel", "unread", "others have read what came to them", "new"]
    assert month_old(store, "exchange_items") == went == {"exchange_items": 3, "messages": 3}
    assert in_outbox(store) == ["unread", "new"]
    assert month_old(store, "conversations") == {}
    with store.read() as tx:
        assert [one.content for one in tx.conversations.exchange.inbox("b").items] == ["unread"]


def test_one_to_all_goes_when_every_reader_has_read_it(store: Store, clock: FrozenClock) -> None:
    news = sent(store, None, "to all")
    age(clock)
    assert month_old(store, "exchange_items") == {}  # nobody read it
    read_by(store, "b", news)
    read_by(store, "c", sent(store, "c", "to c", channel="other"))
    assert month_old(store, "exchange_items") == {}  # c reads, and has not read this
    read_by(store, "c", news)
    assert month_old(store, "exchange_items") == {"exchange_items": 1, "messages": 1}


def test_what_a_pool_shows_stays_when_it_goes_from_the_exchange(store: Store, clock: FrozenClock) -> None:
    session = talk.make_session(store, "s", status="running")
    id = sent(store, "b", "kept", session_id=session.id)
    read_by(store, "b", id)
    age(clock)
    assert month_old(store, "exchange_items") == {"exchange_items": 1}
    assert talk.stored(store, id) == [id]
    assert in_outbox(store) == []
    read_by(store, "b", sent(store, "b", "after"))  # places go on where they were
    assert in_outbox(store) == ["after"]


def test_the_newest_are_kept_however_old(store: Store, clock: FrozenClock) -> None:
    read_by(store, "b", *[sent(store, "b", str(number)) for number in range(5)])
    age(clock)
    assert month_old(store, "exchange_items", keep=2) == {"exchange_items": 3, "messages": 3}
    assert in_outbox(store) == ["3", "4"]


def test_what_nobody_read_goes_where_a_setting_says_when(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock, settings=Settings(conversations_unread_keep_days=50)) as store:
        sent(store, "gone", "unread")
        sent(store, None, "to all, unread")
        age(clock)
        assert month_old(store, "conversations") == {}
        age(clock, 20)
        assert prune(store, "conversations", older_than=70 * DAY).tables == {}
        assert month_old(store, "conversations") == {"exchange_items": 2, "messages": 2}


def test_what_was_sent_without_an_instant_is_as_old_as_its_message(store: Store, clock: FrozenClock, database_url: str) -> None:
    read_by(store, "b", sent(store, "b", "old"))
    place = Place(database_url)
    place.run(f"UPDATE {place.named('exchange_items')} SET sent_at = NULL")
    assert month_old(store, "exchange_items") == {}
    age(clock)
    assert month_old(store, "exchange_items") == {"exchange_items": 1, "messages": 1}
