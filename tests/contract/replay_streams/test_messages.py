"""What is stored for the client of a session is read again by that session alone, in order, until it is too old or too much."""

from datetime import timedelta
from typing import Any

import pytest

from persist.errors import NotFound
from persist.testing import FrozenClock

HARD = "Naïve\x00 text \ud83d stays what it was."


def read(tx: Any, session: str, id: str, **more: Any) -> list[str | None] | None:
    missed = tx.replay_streams.messages.after(session, id, **more)
    return None if missed is None else [one.message for one in missed.messages]


def test_what_follows_in_the_same_stream_in_order(store: Any) -> None:
    with store.begin() as tx:
        append = tx.replay_streams.messages.append
        first = append("a", "1", "one")
        append("a", "2", "of another stream")
        append("b", "1", "of another session")
        second = append("a", "1", HARD)
        third = append("a", "1", "")
    assert first < second < third
    with store.read() as tx:
        missed = tx.replay_streams.messages.after("a", first)
        assert (missed.stream, [one.message for one in missed.messages]) == ("1", [HARD, ""])
        assert [one.id for one in missed.messages] == [second, third]
        assert read(tx, "a", third) == []
        assert read(tx, "b", first) is None  # an id of another session says nothing
        assert read(tx, "a", "rpl_unknown") is None


def test_a_marker_is_a_place_to_go_on_from_and_never_read(store: Any) -> None:
    with store.begin() as tx:
        append = tx.replay_streams.messages.append
        marker = append("a", "1", None)
        append("a", "1", "one")
        append("a", "1", None)
        append("a", "1", "two")
    with store.read() as tx:
        assert read(tx, "a", marker) == ["one", "two"]
        assert [one.message for one in tx.replay_streams.messages.newest("a")] == ["two", None, "one", None]


def test_pages_go_on_from_the_position_of_the_last(store: Any) -> None:
    with store.begin() as tx:
        ids = [tx.replay_streams.messages.append("a", "1", str(number)) for number in range(7)]
    with store.read() as tx:
        messages = tx.replay_streams.messages
        missed = messages.after("a", ids[0], limit=3)
        found = [one.message for one in missed.messages]
        position = missed.position
        while page := messages.list("a", missed.stream, position=position, limit=2):
            assert len(page) <= 2
            found += [one.message for one in page]
            position = page[-1].position
    assert found == ["1", "2", "3", "4", "5", "6"]


def test_only_so_many_of_a_stream_stay(store: Any) -> None:
    with store.begin() as tx:
        append = tx.replay_streams.messages.append
        ids = [append("a", "1", str(number), keep=3) for number in range(6)]
        other = append("a", "2", "other", keep=3)
    with store.read() as tx:
        assert [read(tx, "a", id) for id in ids] == [None, None, None, ["4", "5"], ["5"], []]
        assert read(tx, "a", other) == []


def test_what_is_too_old_is_gone_from_every_stream_of_the_session(store: Any, clock: FrozenClock) -> None:
    hour = timedelta(hours=1)
    with store.begin() as tx:
        append = tx.replay_streams.messages.append
        old = [append("a", str(number), "old", keep_for=hour) for number in range(5)]
        elsewhere = append("b", "1", "of another session")
    clock.advance(seconds=3601)
    with store.read() as tx:
        assert read(tx, "a", old[0], keep_for=hour) is None  # before anything deleted it
        assert read(tx, "a", old[0]) == []
    new = store.replay_streams.messages.append("a", "9", "new", keep_for=hour)
    with store.read() as tx:
        assert [one.id for one in tx.replay_streams.messages.newest("a")] == [new]
        assert read(tx, "b", elsewhere) == []


def test_a_session_is_listed_and_deleted_with_its_messages(store: Any, clock: FrozenClock) -> None:
    with store.begin() as tx:
        id = tx.replay_streams.messages.append("a", "1", "one")
        clock.advance(seconds=1)
        other = tx.replay_streams.messages.append("b", "1", "one")
    page = store.replay_streams.sessions.list(limit=1)
    assert [one.id for one in page.items] == ["b"]
    assert [one.id for one in store.replay_streams.sessions.list(limit=1, after=page.cursor).items] == ["a"]
    assert store.replay_streams.sessions.get("a").updated_at == store.replay_streams.sessions.get("a").created_at
    with store.begin() as tx:
        assert tx.replay_streams.sessions.delete("a") is True
        assert tx.replay_streams.sessions.delete("a") is False
    with store.read() as tx:
        assert read(tx, "a", id) is None
        assert read(tx, "b", other) == []
        with pytest.raises(NotFound):
            tx.replay_streams.sessions.get("a")


def test_writers_of_one_stream_take_turns(store: Any) -> None:
    first = store.replay_streams.messages.append("a", "1", "first")
    for number in range(8):
        store.replay_streams.messages.append("a", "1" if number < 3 else "2", str(number))
    missed = store.replay_streams.messages.after("a", first)
    assert ([one.position for one in missed.messages], missed.more) == ([2, 3, 4], False)
