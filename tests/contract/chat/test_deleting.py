"""Deleting one message takes its parts and its usage along, and leaves everything else right; rewinding before a message."""

from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound
from tests.contract.chat.posts import waits
from tests.contract.chat.scenes import create, record, rollup, say, session_of, shown, text, turn, words
from tests.contract.conftest import Raw


def delete(store: Any, *ids: str) -> None:
    with store.begin() as tx:
        for id in ids:
            assert tx.chat.messages.delete(id) is None


def talk(store: Any, session: str) -> None:
    """u1 a1 u2 a2 u3 a3, with usage of 10, 20 and 30."""
    for number in (1, 2, 3):
        say(store, session, f"u{number}", id=f"u{number}")
        record(store, session, turn(*text(f"a{number}"), id=f"a{number}"))
        store.chat.messages.record_step_usage(f"a{number}", 0, input_tokens=number * 10, output_tokens=0, cost_usd=0.5)


def view(store: Any, session: str) -> list[str]:
    return words(store.chat.messages.model_view(session))


def test_a_message_goes_with_all_that_it_has(store: Any, raw: Raw, session: str) -> None:
    talk(store, session)
    delete(store, "u2", "a2")
    assert words(shown(store, session, include_hidden=True)) == ["u1", "a1", "u3", "a3"]
    for table in ("chat_parts", "chat_step_usage"):
        assert raw.value(f"SELECT count(*) FROM {table} WHERE message_id IN ('u2', 'a2')") == 0
    assert rollup(store, session) == (40, 0, 0, 0, 0, 40)
    assert session_of(store, session).cost_usd == 1.5  # it was spent
    with pytest.raises(NotFound):
        delete(store, "a2")


def test_hidden_and_waiting_messages_go_too(store: Any, raw: Raw, session: str) -> None:
    talk(store, session)
    with store.begin() as tx:
        tx.chat.messages.enqueue(session, parts=[], id="q")
        tx.chat.sessions.rewind(session, "u3")
    delete(store, "q", "a3")
    assert raw.count("chat_messages") == 5
    assert rollup(store, session)[0] == 30
    with store.begin() as tx:
        assert tx.chat.messages.queued(session) == []
        assert tx.chat.sessions.unrewind(session, "u1") == 0


def test_the_tail_of_a_compaction_begins_with_the_next_message(store: Any, session: str) -> None:
    talk(store, session)
    marker = store.chat.messages.compact(session, summary="s", tail_start_id="u2", auto=True, summary_tokens=1).id
    say(store, session, "after")
    assert view(store, session) == ["s", "u2", "a2", "u3", "a3", "after"]
    delete(store, "u2")
    assert view(store, session) == ["s", "a2", "u3", "a3", "after"]
    assert rollup(store, session)[0] == 1 + 20 + 30
    delete(store, "a2", "u3", "a3")
    assert view(store, session) == ["s", "after"]
    data = store.chat.messages.get(marker)["parts"][0]["data"]
    assert data == {"summary": "s", "tail_start_id": None, "auto": True, "summary_tokens": 1}


def test_a_compaction_that_goes_is_no_boundary(store: Any, session: str) -> None:
    talk(store, session)
    marker = store.chat.messages.compact(session, summary="s", tail_start_id=None, auto=True, summary_tokens=7).id
    assert rollup(store, session)[0] == 7
    delete(store, marker)
    assert rollup(store, session)[0] == 60
    assert view(store, session)[0] == "u1"


def test_the_message_of_a_running_turn_stays(store: Any, session: str) -> None:
    talk(store, session)
    with store.record(session) as recorder:
        recorder.feed_many(waits(text("on its way"), "a4"))
        with pytest.raises(Conflict, match="request_stop"):
            delete(store, "a4")
        delete(store, "a1")
        recorder.feed({"type": "finish"})
    delete(store, "a4")
    assert words(shown(store, session)) == ["u1", "u2", "a2", "u3", "a3"]


def test_the_message_of_a_dead_turn_goes_with_its_turn(store: Any, raw: Raw, clock: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many(waits(text("half")[:-1], "a1"))
        raw.rows("UPDATE chat_turns SET owner = 'elsewhere/-/-/-/7/-/000000000000'")
        clock.advance(seconds=61)
        delete(store, "a1")
        assert [raw.count(table) for table in ("chat_turns", "chat_parts", "chat_part_deltas")] == [0, 0, 0]


def test_rewinding_before_a_message_hides_it_too(store: Any, session: str) -> None:
    talk(store, session)

    def rewind(**anchor: str) -> int:
        return int(store.chat.sessions.rewind(session, **anchor))

    assert rewind(before="u3") == 2
    assert words(shown(store, session)) == ["u1", "a1", "u2", "a2"]
    assert rollup(store, session)[0] == 30
    assert rewind(before="a2") == 1
    assert rewind(before="u1") == 3
    assert shown(store, session) == []
    assert rewind(before="a3") == 0  # what stands before it is shown again
    assert words(shown(store, session)) == ["u1", "a1", "u2", "a2", "u3"]
    assert rewind(to_message_id="u1") == 4


def test_a_rewind_has_one_anchor(store: Any, session: str) -> None:
    talk(store, session)
    elsewhere = say(store, create(store), "elsewhere")
    with store.begin() as tx:
        queued = tx.chat.messages.enqueue(session, parts=[]).id
        for anchors in ({}, {"to_message_id": "u1", "before": "u1"}, {"before": queued}, {"before": ""}):
            with pytest.raises(InvalidValue):
                tx.chat.sessions.rewind(session, **anchors)
        for unknown in ("nothing", elsewhere):
            with pytest.raises(NotFound):
                tx.chat.sessions.rewind(session, before=unknown)
    assert len(shown(store, session)) == 6
