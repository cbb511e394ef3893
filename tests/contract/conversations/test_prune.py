"""Pruning: old sessions go with exactly what nothing else shows, and the report counts exactly what went."""

from datetime import timedelta
from typing import Any

from persist.conversations.schemas import PruneReport
from tests.contract.conftest import Raw
from tests.contract.conversations.making import (
    DAY,
    LONG,
    NOTHING,
    branch_of,
    branches,
    change,
    fork_into,
    make_branch,
    make_session,
    members,
    pruned,
    put,
    say,
    sessions,
    shown,
    stored,
    talk,
)
from tests.contract.faces import on_one_face


def test_nothing_to_prune_is_all_zeros(store: Any, raw: Raw) -> None:
    assert pruned(store, raw) == NOTHING
    talk(store, "new", "m")
    assert pruned(store, raw, keep_n=0) == NOTHING


def test_an_old_session_goes_and_a_shared_message_stays(store: Any, raw: Raw, clock: Any) -> None:
    talk(store, "old", "a", "b", "shared")
    clock.advance(delta=31 * DAY)
    talk(store, "new", "shared", "c")
    assert pruned(store, raw, keep_n=0, orphan_grace=LONG) == PruneReport(sessions=1, branches=1, progressions=2, messages=2)
    assert (sessions(store), shown(store, "new")) == (["new"], ["shared", "c"])
    assert stored(store, "a", "b", "shared", "c") == ["shared", "c"]


def test_the_latest_so_many_are_kept_however_old(store: Any, raw: Raw, clock: Any) -> None:
    for name in ("one", "two", "three"):
        talk(store, name, f"m {name}")
        clock.advance(delta=DAY)
    clock.advance(delta=100 * DAY)
    assert pruned(store, raw, keep_n=2).sessions == 1
    assert sessions(store) == ["three", "two"]
    assert pruned(store, raw, keep_n=2) == NOTHING
    assert pruned(store, raw) == NOTHING
    change(store, "two", name="touched")
    assert pruned(store, raw, keep_n=0).sessions == 1
    assert sessions(store) == ["two"]


def test_a_session_goes_once_it_is_older_than_so_many_days(store: Any, raw: Raw, clock: Any) -> None:
    make_session(store, "s")
    clock.advance(delta=7 * DAY)
    assert pruned(store, raw, keep_n=0, keep_days=7) == NOTHING
    clock.advance(seconds=0.001)
    assert pruned(store, raw, keep_n=0, keep_days=8) == NOTHING
    assert pruned(store, raw, keep_n=0, keep_days=7).sessions == 1


def test_running_sessions_are_protected(store: Any, raw: Raw, clock: Any) -> None:
    """A session of which nothing was said is not running."""
    for status in ("running", "completed", "failed", None):
        talk(store, str(status), f"m {status}", status=status)
    clock.advance(delta=400 * DAY)
    assert pruned(store, raw, keep_n=0) == PruneReport(sessions=3, branches=3, progressions=6, messages=3)
    assert (sessions(store), shown(store, "running")) == (["running"], ["m running"])


def test_the_defaults_are_thirty_days_and_a_hundred_sessions(store: Any, raw: Raw, clock: Any) -> None:
    with store.begin() as tx:
        for number in range(103):
            tx.conversations.sessions.create(id=f"s{number:03}")
            clock.advance(seconds=1)
    clock.advance(delta=30 * DAY - timedelta(seconds=104))
    assert pruned(store, raw) == NOTHING
    clock.advance(seconds=104)
    assert pruned(store, raw) == PruneReport(sessions=3, branches=0, progressions=3, messages=0)


@on_one_face
def test_more_sessions_than_a_batch(store: Any, raw: Raw, clock: Any) -> None:
    """What two victims of different batches share goes with the last of them, and is counted once."""
    with store.begin() as tx:
        shared = tx.conversations.progressions.create("pool")
        for number in range(205):
            tx.conversations.sessions.create(id=f"s{number:03}", progression_id=shared)
            tx.conversations.branches.create(f"s{number:03}", id=f"b{number:03}")
            clock.advance(seconds=1)
        for number in (0, 104, 204):
            tx.conversations.messages.record(f"b{number:03}", {"id": "m", "created_at": 1, "role": "user", "content": 1})
    clock.advance(delta=40 * DAY)
    report = pruned(store, raw, keep_n=0, orphan_grace=LONG)
    assert report == PruneReport(sessions=205, branches=205, progressions=206, messages=1)


def test_messages_that_only_a_pointer_of_a_victim_names_go(store: Any, raw: Raw, clock: Any) -> None:
    """Not as orphans, which these are too young to be."""
    put(store, "system", "first", "last", "kept system", "kept first", "kept last")
    make_session(store, "old", first_msg_id="first", last_msg_id="last")
    make_branch(store, "old", system_msg_id="system")
    make_session(store, "old too", first_msg_id="kept first", last_msg_id="kept last")
    make_branch(store, "old too", system_msg_id="kept system")
    clock.advance(delta=40 * DAY)
    make_session(store, "new", first_msg_id="kept last", last_msg_id="kept first")
    make_branch(store, "new", system_msg_id="kept system")
    assert pruned(store, raw, keep_n=0, orphan_grace=LONG) == PruneReport(sessions=2, branches=2, progressions=4, messages=3)
    assert stored(store, "system", "first", "last") == []
    assert len(stored(store, "kept system", "kept first", "kept last")) == 3


def test_a_message_that_a_progression_of_nobody_names_stays(store: Any, raw: Raw, clock: Any) -> None:
    talk(store, "old", "a", "b")
    store.conversations.progressions.create("mine", ids=["a"])
    clock.advance(delta=40 * DAY)
    assert pruned(store, raw, keep_n=0).messages == 1
    assert (stored(store, "a", "b"), members(store, "mine")) == (["a"], ["a"])


def test_a_progression_that_a_survivor_owns_stays(store: Any, raw: Raw, clock: Any) -> None:
    talk(store, "old", "a", "b")
    clock.advance(delta=40 * DAY)
    make_session(store, "new")
    make_branch(store, "new", "view", progression_id=branch_of(store, "old").progression_id)
    assert pruned(store, raw, keep_n=0) == PruneReport(sessions=1, branches=1, progressions=1, messages=0)
    assert shown(store, "view") == ["a", "b"]


def test_a_line_of_forks_is_pruned_link_by_link(store: Any, raw: Raw, clock: Any) -> None:
    """Parents go in one batch, in one prune, or one after another."""
    talk(store, "one", "a", "b", "c")
    parent = "one"
    for name in ("two", "three", "four"):
        make_session(store, name)
        parent = fork_into(store, name, parent, 3, id=name)
        say(store, name, f"of {name}")
        clock.advance(seconds=1)
    clock.advance(delta=40 * DAY)
    change(store, "four", name="in use")
    assert shown(store, "four") == ["a", "b", "c", "of four"]
    assert pruned(store, raw, keep_n=3).sessions == 1
    assert shown(store, "three") == ["a", "b", "c", "of three"]
    assert pruned(store, raw, keep_n=0) == PruneReport(sessions=2, branches=2, progressions=4, messages=2)
    assert shown(store, "four") == ["a", "b", "c", "of four"]
    clock.advance(delta=40 * DAY)
    assert pruned(store, raw, keep_n=0).messages == 4
    assert raw.count("messages") == raw.count("progression_members") == 0


def test_a_fork_in_a_later_batch_is_counted_once(store: Any, raw: Raw, clock: Any) -> None:
    """Its parent goes first, so it gets a history of its own in passing, which goes with it."""
    talk(store, "parent", "a", "b")
    clock.advance(seconds=1)
    with store.begin() as tx:
        for number in range(100):
            tx.conversations.sessions.create(id=f"s{number:03}")
    clock.advance(seconds=1)
    make_session(store, "child")
    fork_into(store, "child", "parent", 2)
    clock.advance(delta=40 * DAY)
    assert pruned(store, raw, keep_n=0) == PruneReport(sessions=102, branches=2, progressions=104, messages=2)


def test_a_session_with_a_label_that_is_too_long_stays_and_the_others_go(store: Any, raw: Raw, clock: Any) -> None:
    """Another program may write an id that no statement of persist can bind again."""
    for name in ("one", "two", "three"):
        make_session(store, name)
        make_branch(store, name, f"of {name}")
    raw.rows("UPDATE branches SET id = ? WHERE id = 'of two'", 700 * "x")
    clock.advance(delta=40 * DAY)
    assert pruned(store, raw, keep_n=0) == PruneReport(sessions=2, branches=2, progressions=4, messages=0)
    assert sessions(store) == ["two"]
    assert pruned(store, raw, keep_n=0) == NOTHING


# Pruning sweeps messages that nothing names once they are old enough, refuses bad options, and is all or nothing.


def test_a_message_that_never_belonged_to_anything_goes_after_a_day(store: Any, raw: Raw, clock: Any) -> None:
    """One that was put a moment ago may be about to be appended."""
    put(store, "old")
    clock.advance(delta=DAY)
    put(store, "new")
    assert pruned(store, raw) == NOTHING
    clock.advance(seconds=0.001)
    assert pruned(store, raw) == PruneReport(sessions=0, branches=0, progressions=0, messages=1)
    assert stored(store, "old", "new") == ["new"]


def test_the_grace_is_counted_from_when_it_was_put(store: Any, raw: Raw, clock: Any) -> None:
    """Not from its created_at, which its runtime made up, and not from the last time it was put."""
    with store.begin() as tx:
        tx.conversations.messages.put({"id": "ancient", "created_at": 1.0, "role": "user", "content": "x"})
        tx.conversations.messages.put({"id": "future", "created_at": 4e9, "role": "user", "content": "x"})
    assert pruned(store, raw) == NOTHING
    clock.advance(delta=DAY + timedelta(seconds=1))
    put(store, "future")
    assert pruned(store, raw).messages == 2


def test_whatever_names_a_message_keeps_it_from_the_sweep(store: Any, raw: Raw, clock: Any) -> None:
    put(store, "in a progression", "first", "last", "system", "nowhere")
    with store.begin() as tx:
        tx.conversations.progressions.create(ids=["in a progression"])
        sent = tx.conversations.exchange.send(sender="a", recipient=None, content="x").id
    make_session(store, "s", status="running", first_msg_id="first", last_msg_id="last")
    make_branch(store, "s", system_msg_id="system")
    clock.advance(delta=40 * DAY)
    assert pruned(store, raw, keep_n=0).messages == 1
    assert stored(store, "nowhere") == []
    assert len(stored(store, "in a progression", "first", "last", "system", sent)) == 5


def test_a_message_of_another_program_without_an_instant_of_its_own_counts_from_created_at(
    store: Any, raw: Raw, clock: Any
) -> None:
    put(store, "old", "new")
    now = clock().timestamp()
    raw.rows("UPDATE messages SET stored_at = NULL, created_at = ? WHERE id = 'old'", now - 86_401)
    raw.rows("UPDATE messages SET stored_at = NULL, created_at = ? WHERE id = 'new'", now - 86_399)
    assert pruned(store, raw).messages == 1
    assert stored(store, "old", "new") == ["new"]


def test_a_dry_run_leaves_the_transaction_as_it_was(store: Any, raw: Raw, clock: Any) -> None:
    talk(store, "old", "a")
    clock.advance(delta=40 * DAY)
    with store.begin() as tx:
        tx.conversations.sessions.create(id="before")
        assert tx.conversations.sessions.prune(keep_n=0, dry_run=True).sessions == 1
        tx.conversations.sessions.create(id="after")
        assert tx.conversations.sessions.get("old").id == "old"
    assert set(sessions(store)) == {"old", "before", "after"}
    assert branches(store, "old") == ["old"]
