"""Sessions that say they run and do not are ended, as an administrator would, and no others."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from persist.conversations import end_stale, stale_sessions
from persist.errors import InvalidValue
from tests.cases import each
from tests.contract.conversations.making import (
    delete_session,
    make_branch,
    make_session,
    say,
    session_of,
    set_status,
    transitions,
)
from tests.contract.faces import on_one_face

HOUR = timedelta(hours=1)


def find(store: Any, clock: Any, **options: Any) -> list[str]:
    with store.read() as tx:
        return sorted(session.id for session in stale_sessions(tx.conversations, now=clock(), **options))


def sweep(store: Any, clock: Any, **options: Any) -> list[str]:
    with store.begin() as tx:
        return sorted(end_stale(tx.conversations, stale_sessions(tx.conversations, now=clock()), **options))


@pytest.fixture
def running(store: Any, clock: Any, raw: Any) -> None:
    """Sessions that started 48 h and 1 h ago, or nobody knows when; one that ended."""
    make_session(store, "old", status="running", started_at=clock() - 48 * HOUR)
    make_session(store, "fresh", status="running", started_at=clock() - HOUR)
    make_session(store, "unknown", status="running")
    raw.rows("UPDATE sessions SET started_at = NULL, last_message_at = NULL WHERE id = 'unknown'")  # as others leave it
    make_session(store, "ended", status="completed", started_at=clock() - 48 * HOUR)
    make_session(store, "silent", started_at=clock() - 48 * HOUR)


def test_old_running_sessions_are_aborted(store: Any, clock: Any, running: None) -> None:
    """(c) 30"""
    fresh, ended, silent = (session_of(store, id) for id in ("fresh", "ended", "silent"))
    assert find(store, clock) == ["old", "unknown"]
    assert sweep(store, clock, reason="too long") == ["old", "unknown"]
    for id in ("old", "unknown"):
        session = session_of(store, id)
        assert (session.status, session.ended_at, session.status_reason_summary) == ("aborted", clock(), "too long")
        last = transitions(store, id)[-1]
        assert (last.previous_status, last.status, last.source, last.actor) == ("running", "aborted", "admin", "doctor")
    assert [session_of(store, id) for id in ("fresh", "ended", "silent")] == [fresh, ended, silent]
    assert sweep(store, clock) == []


def test_a_session_that_was_created_running_began_then(store: Any, clock: Any) -> None:
    session = make_session(store, "live", status="running")
    assert session.started_at == clock()
    make_session(store, "later")
    set_status(store, "later", "running")
    assert session_of(store, "later").started_at == clock()
    clock.advance(seconds=3600)
    assert sweep(store, clock) == []
    clock.advance(seconds=24 * 3600)
    assert sweep(store, clock) == ["later", "live"]


def test_one_that_speaks_is_alive_however_long_ago_it_started(store: Any, clock: Any) -> None:
    for id in ("speaks", "silent"):
        make_session(store, id, status="running")
    branch = make_branch(store, "speaks")
    clock.advance(seconds=30 * 3600)
    say(store, branch, "m1")
    clock.advance(seconds=23 * 3600)
    assert sweep(store, clock) == ["silent"]
    clock.advance(seconds=2 * 3600)
    assert sweep(store, clock) == ["speaks"]


def test_one_that_was_let_go_on_begins_anew(store: Any, clock: Any) -> None:
    make_session(store, "s", status="running")
    clock.advance(seconds=48 * 3600)
    assert sweep(store, clock) == ["s"]
    set_status(store, "s", "running", override="more time", actor="maria")
    assert session_of(store, "s").started_at == clock() - 48 * HOUR
    clock.advance(seconds=3600)
    assert sweep(store, clock) == []
    clock.advance(seconds=24 * 3600)
    assert sweep(store, clock) == ["s"]


def test_one_that_speaks_in_between_goes_on(store: Any, other: Any, clock: Any) -> None:
    make_session(store, "s", status="running", started_at=clock() - 48 * HOUR)
    branch = make_branch(store, "s")
    with store.read() as tx:
        stale = stale_sessions(tx.conversations, now=clock())
    say(other, branch, "m1")
    with store.begin() as tx:
        assert end_stale(tx.conversations, stale) == []
    assert session_of(store, "s").status == "running"


def test_looking_changes_nothing(store: Any, clock: Any, running: None, raw: Any) -> None:
    """(c) 30"""
    before = raw.rows("SELECT * FROM sessions ORDER BY id"), raw.count("status_transitions")
    assert find(store, clock) == find(store, clock) == ["old", "unknown"]
    assert (raw.rows("SELECT * FROM sessions ORDER BY id"), raw.count("status_transitions")) == before


def test_one_that_ends_in_between_stays_as_it_ended(store: Any, other: Any, clock: Any, running: None) -> None:
    """(c) 30"""
    with store.read() as tx:
        stale = stale_sessions(tx.conversations, now=clock())
    clock.advance(seconds=1)
    assert set_status(other, "old", "completed")
    with store.begin() as tx:
        assert end_stale(tx.conversations, stale) == ["unknown"]
    assert session_of(store, "old").status == "completed"
    assert [one.status for one in transitions(store, "old")] == ["running", "completed"]


def test_one_that_is_deleted_in_between_is_no_failure(store: Any, other: Any, clock: Any, running: None) -> None:
    with store.read() as tx:
        stale = stale_sessions(tx.conversations, now=clock())
    assert delete_session(other, "old")
    with store.begin() as tx:
        assert end_stale(tx.conversations, stale) == ["unknown"]


def test_they_may_fail_instead(store: Any, clock: Any, running: None) -> None:
    assert sweep(store, clock, status="failed") == ["old", "unknown"]
    assert session_of(store, "old").status == "failed"


@each("status", ["completed", "running", "cancelled", "over", None])
def test_and_nothing_else(store: Any, clock: Any, running: None, status: Any) -> None:
    with store.begin() as tx, pytest.raises(InvalidValue) as refused:
        end_stale(tx.conversations, [], status=status)
    assert refused.value.path == "status"


def test_how_old_is_old(store: Any, clock: Any, running: None) -> None:
    assert find(store, clock, older_than=HOUR) == ["old", "unknown"]  # an hour is not more than an hour
    assert find(store, clock, older_than=HOUR - timedelta(seconds=1)) == ["fresh", "old", "unknown"]
    assert find(store, clock, older_than=49 * HOUR) == ["unknown"]


@each(("name", "value"), [("older_than", -HOUR), ("older_than", 24), ("older_than", timedelta.max)])
def test_an_age_is_a_length_of_time(store: Any, clock: Any, running: None, name: str, value: Any) -> None:
    with store.read() as tx, pytest.raises(InvalidValue) as refused:
        stale_sessions(tx.conversations, now=clock(), **{name: value})
    assert refused.value.path == name


def test_now_has_a_time_zone(store: Any) -> None:
    with store.read() as tx, pytest.raises(InvalidValue):
        stale_sessions(tx.conversations, now=datetime(2026, 1, 1))


@on_one_face
def test_more_than_a_page_of_them(store: Any, clock: Any) -> None:
    with store.begin() as tx:
        for number in range(1001):
            tx.conversations.sessions.create(id=f"s{number:04}", status="running", started_at=clock() - 48 * HOUR)
    assert sweep(store, clock) == [f"s{number:04}" for number in range(1001)]
    assert find(store, clock) == []
