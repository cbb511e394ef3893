"""Boxes of any length, page by page; and messages that are sent once, under the id they have."""

from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound
from tests.contract.conftest import Raw, ids_of_pages
from tests.contract.conversations.making import make_session, members, message, put
from tests.contract.faces import on_one_face

OWNERS = {"sender": "a", "recipient": "b"}


def send(store: Any, count: int, **fields: Any) -> list[str]:
    with store.begin() as tx:
        return [tx.conversations.exchange.send(**{**OWNERS, "content": number, **fields}).id for number in range(count)]


def box(store: Any, verb: str, owner: str, *, limit: int, **options: Any) -> list[list[str]]:
    """The ids of every page."""
    return [*ids_of_pages(getattr(store.conversations.exchange, verb), owner, limit=limit, **options)]


def seen(store: Any, owner: str) -> list[Any]:
    return [one.content for one in store.conversations.exchange.inbox(owner, unread_only=False).items]


@on_one_face
def test_more_than_a_page_can_hold_is_read_to_its_end(store: Any) -> None:
    sent = send(store, 1005)
    for verb, owner in (("inbox", "b"), ("outbox", "a")):
        pages = box(store, verb, owner, limit=1000)
        assert [len(page) for page in pages] == [1000, 5]
        assert [id for page in pages for id in page] == sent
    assert box(store, "inbox", "c", limit=10) == [[]]


def test_pages_end_where_the_messages_end(store: Any) -> None:
    sent = send(store, 4)
    assert box(store, "outbox", "a", limit=2) == [sent[:2], sent[2:]]
    assert box(store, "inbox", "b", limit=3) == [sent[:3], sent[3:]]
    assert box(store, "inbox", "b", limit=4) == [sent]


def test_reading_meanwhile_skips_nothing(store: Any) -> None:
    sent = send(store, 6)
    with store.begin() as tx:
        exchange = tx.conversations.exchange
        first = exchange.inbox("b", limit=2)
        exchange.mark_read("b", sent[1])
        rest = exchange.inbox("b", limit=10, after=first.cursor)
    assert [one.id for one in (*first.items, *rest.items)] == sent


def test_pages_of_one_channel(store: Any) -> None:
    send(store, 2)
    news = send(store, 3, channel="news")
    for verb, owner in (("inbox", "b"), ("outbox", "a")):
        assert box(store, verb, owner, limit=2, channel="news") == [news[:2], news[2:]]


def test_a_whole_message_is_sent_as_it_is(store: Any, other: Any) -> None:
    whole = {**message("m1", **OWNERS, channel="c", embedding=[0.5], node_metadata={"lion_class": "x.Y"}), "role": "assistant"}
    sent = store.conversations.exchange.post(whole)
    assert sent.to_dict() == whole
    assert other.conversations.exchange.inbox("b").items == other.conversations.exchange.outbox("a").items == [sent]


def test_one_that_is_stored_already_can_be_sent(store: Any) -> None:
    session = make_session(store)
    put(store, "m1")
    store.conversations.exchange.post(message("m1", sender="a", recipient=None), session_id=session.id)
    assert seen(store, "b") == [{"text": "m1"}]
    assert members(store, session.progression_id) == ["m1"]


def test_what_was_sent_is_not_sent_again(store: Any, raw: Raw) -> None:
    whole = message("m1", **OWNERS)
    with store.begin() as tx:
        exchange = tx.conversations.exchange
        first = exchange.post(whole)
        assert exchange.post({**whole, "content": "changed"}) == first
        assert exchange.send(**OWNERS, content="changed", id="m1") == first
        for name, value in (("sender", "x"), ("recipient", "x"), ("recipient", None), ("channel", "x")):
            with pytest.raises(Conflict):
                exchange.post({**whole, name: value})
        second = exchange.send(**OWNERS, content="two", id="m2")
    assert (second.id, seen(store, "b")) == ("m2", [{"text": "m1"}, "two"])
    assert raw.count("exchange_items") == 2


def test_a_message_that_names_nobody_is_refused(store: Any, raw: Raw) -> None:
    """ "unset" is what the runtime writes for nobody."""
    bad: list[tuple[dict[str, Any], str]] = [
        ({"sender": None}, "message.sender"),
        ({"sender": "unset"}, "message.sender"),
        ({"recipient": "unset"}, "message.recipient"),
        ({"content": None}, "message.content"),
        ({"id": ""}, "message.id"),
    ]
    with store.begin() as tx:
        for fields, path in bad:
            with pytest.raises(InvalidValue) as refused:
                tx.conversations.exchange.post({**message("m1", **OWNERS), **fields})
            assert refused.value.path == path
        with pytest.raises(NotFound):
            tx.conversations.exchange.post(message("m1", **OWNERS), session_id="nowhere")
    assert (raw.count("messages"), raw.count("exchange_items")) == (0, 0)
