"""Turns: one recorder at a time in a session, and who may take the turn of one that is gone."""

import os
import socket
from typing import Any

import pytest

from persist import Store
from persist.chat.storage.turns import end_turn
from persist.db.concurrency.ownership import new_owner
from persist.errors import Closed, Conflict
from persist.store.transaction import work_of
from tests.cases import each
from tests.contract.chat.scenes import create, record, say, shown, text, turn, words
from tests.contract.conftest import Raw
from tests.contract.faces import every_way

pytestmark = every_way

DELTA = {"type": "text-delta", "id": "t", "delta": "late"}


def state(raw: Raw) -> list[tuple[Any, ...]]:
    return raw.rows("SELECT session_id, message_id, state FROM chat_turns")


@each("policy", ["chunk", "step", "turn"])
def test_a_turn_runs_from_the_first_chunk_to_the_finish(store: Any, raw: Raw, clock: Any, policy: str) -> None:
    session = create(store)
    at = int(clock().timestamp() * 1000)
    with store.record(session, save_on=policy) as recorder:
        assert state(raw) == []
        recorder.feed({"type": "start", "messageId": "m"})
        assert state(raw) == [(session, "m", "running")]
        assert raw.rows("SELECT started_at, seen_at FROM chat_turns") == [(at, at)]
        recorder.feed_many(text("x"))
        recorder.feed({"type": "finish"})
        assert state(raw) == []
    store.chat.sessions.delete(session)


@each("end", ["abort", "close", "exception"])
def test_a_turn_ends_with_abort_close_or_an_exception(store: Any, raw: Raw, end: str) -> None:
    session = create(store)

    def ended() -> None:
        with store.record(session) as recorder:
            recorder.feed({"type": "start-step"})
            assert len(state(raw)) == 1
            if end == "abort":
                recorder.feed({"type": "abort"})
            elif end == "close":
                recorder.close()
            else:
                raise ZeroDivisionError
            assert state(raw) == []
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ended()
    assert state(raw) == []


def test_a_second_recorder_is_a_conflict_on_entering(store: Any, other: Any, session: str) -> None:
    with store.record(session) as first:
        first.feed({"type": "text-start", "id": "t"})
        for handle in (store, other):
            with pytest.raises(Conflict), handle.record(session):
                raise AssertionError("entered")
        first.feed(DELTA)
        with store.record(create(store)) as elsewhere:  # another session is another turn
            elsewhere.feed({"type": "start-step"})
    record(other, session, text("next"))
    assert words(shown(store, session)) == ["late", "next"]


def test_of_two_that_entered_the_first_to_feed_has_the_turn(store: Any, other: Any, session: str) -> None:
    with store.record(session) as first, other.record(session) as second:
        second.feed({"type": "text-start", "id": "t"})
        with pytest.raises(Conflict):
            first.feed({"type": "text-start", "id": "t"})
        second.feed(DELTA)
    assert words(shown(store, session)) == ["late"]


@each("late", [DELTA, {"type": "text-end", "id": "t"}, {"type": "finish"}], ids=lambda chunk: chunk["type"])
def test_a_takeover_fences_the_first_recorder(store: Any, other: Any, late: dict[str, Any]) -> None:
    session = create(store)
    with store.record(session) as first:
        first.feed({"type": "start", "messageId": "m"})
        first.feed_many(text("kept")[:-1])
        with other.record(session, takeover=True) as second:
            second.feed({"type": "start", "messageId": "m"})
            before = shown(store, session)
            with pytest.raises(Conflict):
                first.feed(late)
            assert shown(store, session) == before
            with pytest.raises(Closed):
                first.feed(late)
            second.feed_many([*text(", and more"), {"type": "finish"}])
    assert words(shown(store, session)) == ["kept, and more"]
    store.chat.sessions.delete(session)


def test_a_turn_is_ended_for_its_owner_alone(database_url: str, open_raw: Any) -> None:
    """As by the doctor, which found the process of a turn gone, and another one took the turn meanwhile."""
    with Store.open(database_url) as store, store.record(session := create(store)) as recorder:
        recorder.feed({"type": "start", "messageId": "m"})
        with store.begin() as tx:
            end_turn(work_of(tx), session, new_owner())
        assert state(open_raw(database_url)) == [(session, "m", "running")]


@each(
    "owner",
    ["another.host/1/nonce", "{host}/{hidden}/nonce", "{host}/{own}/nonce", "{host}/{boot}/1/1/{hidden}/1/nonce"],
    ids=["another host", "a number nobody has here", "our own number", "another container"],
)
def test_an_owner_elsewhere_is_alive_until_unseen_for_a_minute(store: Any, raw: Raw, clock: Any, owner: str) -> None:
    """As if the process of another host or container were gone: its recorder was never closed."""
    session = create(store)
    at = int(clock().timestamp() * 1000)
    insert = (
        "INSERT INTO chat_turns (session_id, message_id, state, owner, started_at, seen_at) VALUES (?, 'm', 'running', ?, ?, ?)"
    )
    boot = new_owner().split("/")[1]
    raw.rows(insert, session, owner.format(host=socket.gethostname(), hidden=2**22 + 1, own=os.getpid(), boot=boot), at, at)
    point = say(store, session, "and?")
    called = store.chat.messages.append(
        session, role="assistant", parts=[{"type": "tool-x", "toolCallId": "c", "state": "input-available"}]
    )
    clock.advance(seconds=60)
    with pytest.raises(Conflict), store.record(session):
        raise AssertionError("entered")
    with store.begin() as tx:
        waiting = tx.chat.messages.enqueue(session, parts=[])
        assert tx.chat.messages.claim_queued(session) is None
        assert tx.chat.messages.repair_interrupted(session) == 0
        with pytest.raises(Conflict):
            tx.chat.sessions.fork(session, point)
    clock.advance(seconds=0.001)
    with store.begin() as tx:
        assert tx.chat.messages.claim_queued(session).id == waiting.id
        assert tx.chat.messages.repair_interrupted(session) == 1
        assert tx.chat.messages.get(called.id)["parts"][0]["state"] == "output-error"
    record(store, session, turn(*text("taken over")))
    assert state(raw) == []
    assert words(shown(store, session)) == ["and?", "", "", "taken over"]


def test_a_live_recorder_is_not_stale_however_long_a_tool_runs(store: Any, other: Any, clock: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed({"type": "start-step"})
        clock.advance(seconds=3600)
        with pytest.raises(Conflict), other.record(session):
            raise AssertionError("entered")
        recorder.feed_many(text("still here"))
    assert words(shown(store, session)) == ["still here"]


@each("ending", [{"type": "finish"}, {"type": "abort"}, None], ids=["finish", "abort", "close"])
def test_an_error_outlives_its_turn_and_does_not_run(store: Any, raw: Raw, ending: Any) -> None:
    session = create(store)
    with store.record(session) as recorder:
        recorder.feed_many([*text("x"), {"type": "error", "errorText": "overloaded"}])
        assert [row[2] for row in state(raw)] == ["error"]
        recorder.feed_many([ending] if ending else [])
    assert [row[2] for row in state(raw)] == ["error"]
    with store.begin() as tx:
        message = tx.chat.messages.enqueue(session, parts=[])
        assert tx.chat.messages.claim_queued(session) is None
        point = tx.chat.messages.list(session)[0]["id"]
        tx.chat.sessions.fork(session, point)  # nothing runs
    with store.record(session) as recorder:
        assert [row[2] for row in state(raw)] == ["error"]
        recorder.feed({"type": "start-step"})
        assert [row[2] for row in state(raw)] == ["running"]
    assert state(raw) == []
    assert store.chat.messages.claim_queued(session).id == message.id


def test_chunks_after_the_finish_still_count(store: Any, raw: Raw, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many(turn(*text("one"), id="m"))
        recorder.feed_many(text("two"))
        assert [row[2] for row in state(raw)] == ["running"]
    assert state(raw) == []
    assert words(shown(store, session)) == ["onetwo"]
