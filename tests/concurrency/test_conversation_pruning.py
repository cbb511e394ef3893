"""Where several write at once a prune takes what is nobody's, and waits for whoever is about to use it."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from persist import Store
from persist.conversations.schemas import PruneReport
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.contract.conversations.making import (
    fork_into,
    make_branch,
    make_session,
    members,
    message,
    prune,
    put,
    say,
    session_of,
    set_status,
    shown,
    stored,
)

DAY = timedelta(days=1)


@pytest.fixture
def clock() -> FrozenClock:
    """One instant for all, which a test can move; processes have their own clocks."""
    return FrozenClock()


postgres = pytest.mark.parametrize("backend", ["postgres"])
WAITS = """SELECT count(*) FROM pg_stat_activity
    WHERE pg_backend_pid() <> pid AND cardinality(pg_blocking_pids(pid)) > 0 AND datname = current_database()"""
WAITS_ON_NODES = "SELECT count(*) FROM citus_lock_waits"


def until_it_waits(url: str, task: "Future[Any]", also: Callable[[], bool] = lambda: False) -> None:
    """Until the task waits for a lock, or is over, or something else is so."""
    with closing(Raw(url)) as raw:
        waits = WAITS_ON_NODES if raw.value("SELECT count(*) FROM pg_extension WHERE extname = 'citus'") else WAITS
        while not task.done() and not also() and not raw.value(waits):
            time.sleep(0.01)


def old_talk(store: Store, clock: FrozenClock, *ids: str) -> None:
    """A session of long ago, and a new one that is empty; each has a branch of its name."""
    make_session(store, "old")
    make_branch(store, "old", "old")
    say(store, "old", *ids)
    clock.advance(delta=40 * DAY)
    make_session(store, "new")
    make_branch(store, "new", "new")


@postgres
@pytest.mark.parametrize("named", [True, False])
def test_a_prune_leaves_a_message_that_is_being_recorded(
    store: Store, database_url: str, clock: FrozenClock, named: bool
) -> None:
    """Whether a session that goes names it, or nobody did so far."""
    old_talk(store, clock, *(["m"] if named else []))
    if not named:
        put(store, "m")
        clock.advance(delta=2 * DAY)
    with ThreadPoolExecutor(1) as pool:
        with store.begin() as tx:
            tx.conversations.messages.record("new", message("m"))
            pruning = pool.submit(prune, store, keep_n=1)
            until_it_waits(database_url, pruning)
        assert pruning.result(30).messages == 0
    assert (shown(store, "new"), stored(store, "m")) == (["m"], ["m"])


@postgres
def test_a_prune_leaves_a_session_that_is_being_used(store: Store, database_url: str, clock: FrozenClock) -> None:
    old_talk(store, clock, "m1")
    with ThreadPoolExecutor(1) as pool:
        with store.begin() as tx:
            tx.conversations.messages.record("old", message("m2"))
            pruning = pool.submit(prune, store, keep_n=0)
            until_it_waits(database_url, pruning)
        assert pruning.result(30) == PruneReport(sessions=0, branches=0, progressions=0, messages=0)
    assert shown(store, "old") == ["m1", "m2"]


@postgres
@pytest.mark.parametrize("first", ["the message", "the prune"])
def test_a_fork_that_is_recorded_into_while_its_parent_goes_has_both(
    store: Store, database_url: str, clock: FrozenClock, first: str
) -> None:
    old_talk(store, clock, "m1", "m2")
    fork_into(store, "new", "old", 2, id="fork")
    with ThreadPoolExecutor(1) as pool:
        with store.begin() as tx:
            if first == "the message":
                tx.conversations.messages.record("fork", message("own"))
                waiting: Future[Any] = pool.submit(prune, store, keep_n=0)
            else:
                tx.conversations.sessions.prune(keep_n=0)
                waiting = pool.submit(say, store, "fork", "own")
            until_it_waits(database_url, waiting)
        waiting.result(30)
    assert shown(store, "fork") == ["m1", "m2", "own"]


@postgres
def test_a_status_and_a_message_do_not_wait_for_each_other_in_a_circle(store: Store, database_url: str) -> None:
    """Who appends to a session's progression may go on to its row while another ends the session."""
    session = make_session(store, "s", status="running")
    make_branch(store, "s", "b")
    with ThreadPoolExecutor(1) as pool:
        with store.begin() as tx:
            tx.conversations.progressions.append(session.progression_id, "m0")
            ending = pool.submit(set_status, store, "s", "completed")
            until_it_waits(database_url, ending)
            tx.conversations.messages.record("b", message("m1"))
        assert ending.result(30) is True
    assert members(store, session.progression_id) == ["m0", "m1"]
    assert session_of(store, "s").status == "completed"
