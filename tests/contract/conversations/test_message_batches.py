"""Many messages: put in one batch into progressions and a pool, and read by their ids."""

from contextlib import suppress
from typing import Any

import pytest

from persist.errors import NotFound
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import (
    NOWHERE,
    items,
    make_progression,
    make_session,
    message,
    numbered,
    present,
    put_many,
    refused,
    session_of,
    stored,
)

# ---------------------------------------------------------------- many


def test_many_are_read_by_id_in_the_order_asked_for(store: Any) -> None:
    ids = numbered(1203)
    assert put_many(store, [message(id, id) for id in ids]) == 1203
    wanted = [*reversed(ids), NOWHERE, ids[0]]
    with store.read() as tx:
        found = tx.conversations.messages.get_many(wanted)
        assert tx.conversations.messages.get_many([]) == {}
        assert tx.conversations.messages.get_many(iter(ids[:2])) == {id: found[id] for id in ids[:2]}
    assert list(found) == ids[::-1]
    assert all(one.id == one.content == id for id, one in found.items())


def test_ids_and_messages_are_lists(store: Any) -> None:
    with store.begin() as tx:
        for bad, at in (("ids", ""), (b"ids", ""), (None, ""), (5, ""), ([None], "[0]"), (["a", 5], "[1]"), (["a", ""], "[1]")):
            assert refused(tx.conversations.messages.get_many, bad) == f"ids{at}"
            assert refused(tx.conversations.messages.put_many, [message("a")], progression_ids=bad) == f"progression_ids{at}"
        for no_list in (None, "text", b"x", message("a"), 5, {"a"}):
            assert refused(tx.conversations.messages.put_many, no_list) == "messages"
    assert stored(store, "a") is None


def test_of_many_with_one_id_the_last_stays(store: Any, raw: Raw) -> None:
    progression = make_progression(store)
    batch = [message("b", 1, created_at=1.0), message("a", 2), message("b", 3, created_at=3.0)]
    put_many(store, batch, progression_ids=[progression])
    assert (present(store, "b").content, present(store, "b").created_at_epoch) == (3, 1.0)
    assert items(store, progression) == ["b", "a"]
    assert raw.count("messages") == 2


def test_many_join_every_progression_once_in_their_order(store: Any) -> None:
    first, second = make_progression(store, ["z", "b"]), make_progression(store)
    assert put_many(store, [message(id) for id in ("c", "b", "a")], progression_ids=[second, first, second]) == 3
    assert items(store, first) == ["z", "b", "c", "a"]
    assert items(store, second) == ["c", "b", "a"]


def test_many_join_the_pool_of_a_session(store: Any, clock: Any) -> None:
    session = make_session(store)
    at = clock.advance(seconds=5)
    put_many(store, [message("b"), message("a")], session_id=session.id, progression_ids=[session.progression_id])
    found = session_of(store, session.id)
    assert items(store, session.progression_id) == ["b", "a"]
    assert (found.first_msg_id, found.last_msg_id) == ("b", "a")
    assert (found.updated_at, found.last_message_at) == (at, at)


def test_no_messages_change_nothing(store: Any, clock: Any) -> None:
    session = make_session(store)
    clock.advance(seconds=5)
    assert put_many(store, [], session_id=session.id, progression_ids=[session.progression_id]) == 0
    assert session_of(store, session.id) == session


def test_an_unknown_progression_or_session_is_refused_before_anything_is_written(store: Any, raw: Raw) -> None:
    progression = make_progression(store)
    with store.begin() as tx:
        for options, kind in (
            ({"progression_ids": [progression, NOWHERE]}, "progression"),
            ({"progression_ids": [progression], "session_id": NOWHERE}, "session"),
        ):
            with pytest.raises(NotFound) as missing:
                tx.conversations.messages.put_many([message("a")], **options)
            assert (missing.value.kind, missing.value.id) == (kind, NOWHERE)
        tx.conversations.messages.put(message("kept"))  # the transaction is still good
    assert raw.rows("SELECT id FROM messages") == [("kept",)]
    assert items(store, progression) == []


def test_a_transaction_that_fails_keeps_none_of_them(store: Any, raw: Raw) -> None:
    progression = make_progression(store)
    with suppress(InterruptedError), store.begin() as tx:
        tx.conversations.messages.put_many([message(id) for id in numbered(20)], progression_ids=[progression])
        raise InterruptedError
    assert raw.count("messages") == 0
    assert items(store, progression) == []
