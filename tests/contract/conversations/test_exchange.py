"""The exchange: what owners send each other, first in first out, and how far each has read."""

from typing import Any

from persist.conversations.schemas import ConvMessage
from tests.contract.conversations.making import DAY, make_branch, make_session, members, message, prune, say, session_of, texts


def send(store: Any, sender: str, recipient: str | None, content: Any, **fields: Any) -> ConvMessage:
    sent: ConvMessage = store.conversations.exchange.send(sender=sender, recipient=recipient, content=content, **fields)
    return sent


def inbox(store: Any, owner: str, **options: Any) -> list[Any]:
    """The contents of an inbox."""
    return texts(store.conversations.exchange.inbox(owner, **options).items)


def outbox(store: Any, owner: str, **options: Any) -> list[Any]:
    return texts(store.conversations.exchange.outbox(owner, **options).items)


def unread(store: Any, owner: str, **options: Any) -> int:
    return int(store.conversations.exchange.unread_count(owner, **options))


def mark_read(store: Any, owner: str, message_id: str) -> bool:
    return bool(store.conversations.exchange.mark_read(owner, message_id))


def test_a_message_is_in_the_inbox_of_its_recipient_and_the_outbox_of_its_sender(store: Any, other: Any) -> None:
    sent = send(store, "a", "b", {"text": "hi", "list": [1, 2.5, None]})
    with other.read() as tx:
        assert tx.conversations.exchange.inbox("b").items == [sent]
        assert tx.conversations.exchange.outbox("a").items == [sent]
        assert tx.conversations.messages.get(sent.id) == sent
        for owner in ("a", "c"):
            assert tx.conversations.exchange.inbox(owner).items == []
        assert tx.conversations.exchange.outbox("b").items == []


def test_a_plain_message_has_the_role_unset_and_the_instant_of_the_store(store: Any, clock: Any) -> None:
    sent = send(store, "a", "b", "hi", channel="news")
    assert (sent.sender, sent.recipient, sent.channel, sent.role) == ("a", "b", "news", "unset")
    assert (sent.created_at, sent.content, sent.lion_class) == (clock(), "hi", 0)


def test_first_in_first_out_whatever_the_clock_says(store: Any, clock: Any) -> None:
    for number in range(5):
        send(store, "a", "b", number)
        clock.advance(seconds=-1)
    assert inbox(store, "b") == outbox(store, "a") == [0, 1, 2, 3, 4]
    assert inbox(store, "b", limit=2) == outbox(store, "a", limit=2) == [0, 1]


def test_a_broadcast_reaches_everybody_but_its_sender(store: Any) -> None:
    send(store, "a", "b", "to b")
    send(store, "a", None, "to all")
    send(store, "b", None, "from b to all")
    assert inbox(store, "a") == ["from b to all"]
    assert inbox(store, "b") == ["to b", "to all"]
    assert inbox(store, "came later") == ["to all", "from b to all"]
    assert outbox(store, "a") == ["to b", "to all"]


def test_only_what_was_sent_is_in_the_exchange(store: Any) -> None:
    """Messages of conversations name senders and recipients too."""
    branch = make_branch(store, make_session(store).id)
    with store.begin() as tx:
        tx.conversations.messages.put(message("put", sender="a", recipient="b"))
        tx.conversations.messages.record(branch, message("recorded", sender="a", recipient="b", channel="news"))
    assert inbox(store, "b") == outbox(store, "a") == []
    assert unread(store, "b") == 0
    assert mark_read(store, "b", "put") is False


def test_with_a_session_it_joins_the_pool_too(store: Any) -> None:
    session = make_session(store)
    branch = make_branch(store, session.id)
    say(store, branch, "m1")
    sent = send(store, branch, "b", "hi", session_id=session.id)
    assert members(store, session.progression_id) == ["m1", sent.id]
    assert inbox(store, "b") == ["hi"]


def test_a_channel_filters(store: Any) -> None:
    for number, channel in enumerate(["news", None, "work", "news"]):
        send(store, "a", "b", number, channel=channel)
    assert inbox(store, "b") == outbox(store, "a") == [0, 1, 2, 3]
    assert inbox(store, "b", channel="news") == outbox(store, "a", channel="news") == [0, 3]
    assert (unread(store, "b"), unread(store, "b", channel="news"), unread(store, "b", channel="none")) == (4, 2, 0)


def test_reading_moves_a_cursor_and_unread_is_what_lies_behind_it(store: Any, other: Any) -> None:
    ids = [send(store, "a", "b", number).id for number in range(5)]
    assert unread(store, "b") == 5
    assert mark_read(store, "b", ids[2]) is True
    assert (inbox(other, "b"), unread(other, "b")) == ([3, 4], 2)
    assert inbox(store, "b", unread_only=False) == [0, 1, 2, 3, 4]
    send(store, "a", "b", 5)
    assert inbox(store, "b", limit=2) == [3, 4]
    assert (inbox(store, "b"), unread(store, "b")) == ([3, 4, 5], 3)


def test_every_owner_has_a_cursor_of_its_own(store: Any) -> None:
    sent = send(store, "a", None, "to all")
    assert mark_read(store, "b", sent.id) is True
    assert (inbox(store, "b"), inbox(store, "c")) == ([], ["to all"])
    assert (unread(store, "b"), unread(store, "c"), unread(store, "a")) == (0, 1, 0)


def test_every_channel_has_a_cursor_of_its_own(store: Any) -> None:
    """What is read in one is not read in another; what has no channel is read by itself."""
    first, second, third, fourth = (
        send(store, "a", "b", number, channel=channel).id for number, channel in enumerate(["news", None, "work", "news"])
    )
    assert mark_read(store, "b", fourth) is True
    assert inbox(store, "b") == [1, 2]
    assert mark_read(store, "b", second) is True
    assert (inbox(store, "b"), unread(store, "b")) == ([2], 1)
    assert mark_read(store, "b", first) is False
    assert mark_read(store, "b", third) is True
    assert (inbox(store, "b"), unread(store, "b")) == ([], 0)


def test_messages_of_the_exchange_outlive_every_prune(store: Any, clock: Any) -> None:
    session = make_session(store)
    sent = [send(store, "a", "b", 1), send(store, "a", None, 2, session_id=session.id)]
    mark_read(store, "b", sent[0].id)
    clock.advance(delta=400 * DAY)
    assert prune(store, keep_n=0).sessions == 1
    assert inbox(store, "b", unread_only=False) == [1, 2]
    assert (inbox(store, "b"), outbox(store, "a")) == ([2], [1, 2])


def test_deleting_a_message_takes_it_out_and_the_order_goes_on(store: Any) -> None:
    ids = [send(store, "a", "b", number).id for number in range(3)]
    mark_read(store, "b", ids[1])
    assert store.conversations.messages.delete(ids[1]) is True
    send(store, "a", "b", 3)
    assert inbox(store, "b", unread_only=False) == [0, 2, 3]
    assert (inbox(store, "b"), unread(store, "b")) == ([2, 3], 2)


def test_an_exchange_is_no_activity_of_a_session(store: Any, clock: Any) -> None:
    before = make_session(store, "s")
    clock.advance(seconds=60)
    send(store, "a", "b", "hi", session_id="s")
    assert session_of(store, "s") == before
