"""Deleting sessions and branches: what anything else shows stays as it was."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from persist.conversations import end_stale, stale_sessions
from persist.errors import InvalidValue, NotFound
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.conversations.making import (
    branch_of,
    branches,
    delete_branch,
    delete_session,
    fork,
    fork_into,
    make_branch,
    make_session,
    members,
    put,
    say,
    session_of,
    set_status,
    shown,
    transitions,
)
from tests.contract.faces import on_one_face


def talk(store: Any, session_id: str = "s", branch_id: str = "root", count: int = 5) -> list[str]:
    """A session with a branch of so many messages -> their ids."""
    make_session(store, session_id)
    make_branch(store, session_id, branch_id)
    ids = [f"{branch_id}{number}" for number in range(count)]
    say(store, branch_id, *ids)
    return ids


def test_a_session_goes_with_its_branches_and_progressions(store: Any, other: Any, raw: Raw) -> None:
    talk(store)
    fork(store, "root", 2)
    put(store, "m")
    make_session(store, "kept")
    kept = make_branch(store, "kept", system_msg_id="m")
    assert delete_session(store, "s") is True
    assert delete_session(store, "s") is False
    for gone in (lambda: session_of(other, "s"), lambda: branch_of(other, "root"), lambda: shown(other, "root")):
        with pytest.raises(NotFound):
            gone()
    assert branches(store, "s") == []
    assert [branch.id for branch in [branch_of(store, kept)]] == branches(store, "kept") == [kept]
    assert (raw.count("progressions"), raw.count("progression_members")) == (2, 0)


def test_parents_that_go_together_leave_the_history_of_a_fork(store: Any) -> None:
    """The parent and its fork are of one session; the fork of the fork is not."""
    talk(store)
    make_session(store, "t")
    one = fork(store, "root", 4)
    say(store, one, "one1")
    two = fork_into(store, "t", one, 5)
    say(store, two, "two1")
    delete_session(store, "s")
    assert shown(store, two) == ["root0", "root1", "root2", "root3", "one1", "two1"]


def test_a_fork_that_loses_its_parent_has_none_and_keeps_its_configuration(store: Any) -> None:
    talk(store)
    make_session(store, "t")
    put(store, "prompt")
    orphan = fork_into(store, "t", "root", 2, name="n", user="u", system_msg_id="prompt")
    before = branch_of(store, orphan)
    delete_session(store, "s")
    after = branch_of(store, orphan)
    assert (after.parent_branch_id, after.forked_at_ord, after.node_metadata) == (None, None, {"model": "m"})
    same = ("id", "name", "user", "session_id", "system_msg_id", "created_at", "status", "progression_id")
    assert all(getattr(after, name) == getattr(before, name) for name in same)


def test_what_a_fork_gets_is_in_the_published_array_too(store: Any, raw: Raw) -> None:
    talk(store)
    make_session(store, "t")
    orphan = fork_into(store, "t", "root", 2)
    say(store, orphan, "own")
    delete_session(store, "s")
    pool = branch_of(store, orphan).progression_id
    assert members(store, pool) == ["root0", "root1", "own"]
    assert raw.json("SELECT collection FROM progressions WHERE id = ?", pool) == ["root0", "root1", "own"]


def test_what_a_fork_inherits_is_shown_once_however_often_it_is_recorded(store: Any) -> None:
    """As in a branch that is no fork; what of its parent it does not inherit is new there."""
    talk(store)
    make_session(store, "t")
    echo = fork_into(store, "t", "root", 2)
    twig = fork(store, echo)
    say(store, echo, "root0", "root3", "root0", "root3")
    say(store, twig, "root1", "own", "root3")
    for _ in range(2):
        assert shown(store, echo) == ["root0", "root1", "root3"]
        assert shown(store, twig) == ["root0", "root1", "own", "root3"]
        assert members(store, session_of(store, "t").progression_id) == ["root0", "root3", "root1", "own"]
        delete_session(store, "s")


def test_a_branch_goes_alone(store: Any) -> None:
    ids = talk(store)
    make_branch(store, "s", "sibling")
    say(store, "sibling", "x")
    pool = session_of(store, "s").progression_id
    own = branch_of(store, "root").progression_id
    assert delete_branch(store, "root") is True
    assert delete_branch(store, "root") is False
    assert branches(store, "s") == ["sibling"]
    assert (members(store, own), members(store, pool)) == ([], [*ids, "x"])
    assert shown(store, "sibling") == ["x"]


def test_a_history_with_missing_messages_keeps_its_places(store: Any) -> None:
    """A place whose message is not there yet is inherited like any other."""
    make_session(store, "s")
    store.conversations.progressions.create("pool", ids=["a", "later", "b"])
    put(store, "a", "b")
    make_branch(store, "s", "root", progression_id="pool")
    one = fork(store, "root", 2)
    delete_branch(store, "root")
    put(store, "later")
    assert shown(store, one) == ["a", "later"]


def test_a_progression_stays_as_long_as_anything_owns_it(store: Any) -> None:
    talk(store)
    pool = session_of(store, "s").progression_id
    own = branch_of(store, "root").progression_id
    make_session(store, "t", progression_id=own)
    make_branch(store, "t", "view", progression_id=pool)
    assert delete_session(store, "s")
    assert len(shown(store, "view")) == 5
    assert len(members(store, own)) == 5
    assert delete_branch(store, "view")
    assert (members(store, pool), len(members(store, own))) == ([], 5)
    assert delete_session(store, "t")
    assert members(store, own) == []


def test_a_session_and_its_branch_may_own_one_progression(store: Any, raw: Raw) -> None:
    session = make_session(store, "s")
    make_branch(store, "s", "root", progression_id=session.progression_id)
    say(store, "root", "m1", "m2")
    assert members(store, session.progression_id) == ["m1", "m2"]
    assert delete_branch(store, "root")
    assert members(store, session.progression_id) == ["m1", "m2"]
    assert delete_session(store, "s")
    assert raw.count("progressions") == 0


def test_a_fork_with_a_shared_progression_does_not_change_what_others_show(store: Any, raw: Raw) -> None:
    """What it inherited becomes its own, and not that of whoever shares its progression."""
    talk(store)
    make_session(store, "t")
    orphan = fork_into(store, "t", "root", 2)
    make_branch(store, "t", "view", progression_id=branch_of(store, orphan).progression_id)
    say(store, "view", "x")
    assert (shown(store, orphan), shown(store, "view")) == (["root0", "root1", "x"], ["x"])
    delete_session(store, "s")
    assert (shown(store, orphan), shown(store, "view")) == (["root0", "root1", "x"], ["x"])
    delete_branch(store, orphan)
    assert shown(store, "view") == ["x"]
    assert raw.count("progressions") == 2  # of the session and of the view


# Sessions that say they run and do not are ended, as an administrator would, and no others.


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
    stale = stale_sessions(store.conversations, now=clock())
    say(other, branch, "m1")
    assert end_stale(store.conversations, stale) == []
    assert session_of(store, "s").status == "running"


def test_one_that_ends_in_between_stays_as_it_ended(store: Any, other: Any, clock: Any, running: None) -> None:
    stale = stale_sessions(store.conversations, now=clock())
    clock.advance(seconds=1)
    assert set_status(other, "old", "completed")
    assert end_stale(store.conversations, stale) == ["unknown"]
    assert session_of(store, "old").status == "completed"
    assert [one.status for one in transitions(store, "old")] == ["running", "completed"]


def test_one_that_is_deleted_in_between_is_no_failure(store: Any, other: Any, clock: Any, running: None) -> None:
    stale = stale_sessions(store.conversations, now=clock())
    assert delete_session(other, "old")
    assert end_stale(store.conversations, stale) == ["unknown"]


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
