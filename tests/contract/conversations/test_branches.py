"""Branches: made in a session, listed and deleted."""

from datetime import UTC, datetime
from typing import Any

import pytest

from persist.conversations.schemas import Branch
from persist.errors import Conflict
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import (
    NOT_LABELS,
    NOWHERE,
    branch_of,
    delete,
    fork,
    history,
    items,
    make_branch,
    make_progression,
    make_session,
    put,
    refused,
    say,
    session_of,
    stored,
)

CONFIG = {"provider": "p", "model": "m", "tools": ["a"], "deep": {"x": 1, "y": 2}}


def listed(store: Any, session_id: str) -> list[str]:
    with store.read() as tx:
        return [branch.id for branch in tx.conversations.branches.list(session_id)]


def drop(store: Any, id: str) -> bool:
    return bool(store.conversations.branches.delete(id))


# ---------------------------------------------------------------- making


def test_a_branch_has_every_field_it_is_given(store: Any, other: Any) -> None:
    session, progression = make_session(store), make_progression(store, ["s"])
    put(store, "s", role="system")
    at = datetime(2026, 1, 1, 2, 3, 4, 567_891, tzinfo=UTC)
    made = make_branch(
        store,
        session.id,
        id="mine",
        name="Main",
        user="ada",
        node_metadata=CONFIG,
        created_at=at,
        progression_id=progression,
        system_msg_id="s",
    )
    assert made == Branch(
        id="mine",
        created_at=at,
        name="Main",
        user="ada",
        session_id=session.id,
        progression_id=progression,
        system_msg_id="s",
        status=None,
        started_at=None,
        ended_at=None,
        parent_branch_id=None,
        forked_at_ord=None,
        node_metadata=CONFIG,
    )
    assert branch_of(other, "mine") == made


def test_what_is_left_out_is_absent_or_minted(store: Any, clock: Any) -> None:
    one = make_branch(store)
    two = make_branch(store, one.session_id)
    assert (one.name, one.user, one.node_metadata, one.system_msg_id) == (None,) * 4
    assert one.created_at == clock()
    progressions = {one.progression_id, two.progression_id, session_of(store, one.session_id).progression_id}
    assert len(progressions) == 3
    assert items(store, one.progression_id) == []


def test_a_branch_that_exists_is_returned_as_it_is(store: Any, raw: Raw) -> None:
    """(c) 17"""
    session = make_session(store).id
    made = make_branch(store, session, id="mine", name="first", node_metadata=CONFIG)
    count = raw.count("progressions")
    assert make_branch(store, session, id="mine", name="second", node_metadata={"x": 1}) == made
    assert raw.count("progressions") == count
    assert listed(store, session) == ["mine"]


def test_a_bad_field_is_named_and_nothing_is_written(store: Any, raw: Raw) -> None:
    session = make_session(store).id
    bad: list[tuple[str, Any]] = [
        ("node_metadata.parent_branch_id", {"parent_branch_id": 1, "forked_at_ord": 1}),
        ("node_metadata.parent_branch_id", {"forked_at_ord": 1}),
        ("node_metadata.forked_at_ord", {"parent_branch_id": "p"}),
        ("node_metadata.forked_at_ord", {"parent_branch_id": "p", "forked_at_ord": -1}),
        ("node_metadata.forked_at_ord", {"parent_branch_id": "p", "forked_at_ord": "1"}),
        ("node_metadata.x", {"x": float("nan")}),
    ]
    with store.begin() as tx:
        for path, value in bad:
            assert refused(tx.conversations.branches.create, session, **{path.partition(".")[0]: value}) == path, value
    assert raw.count("branches") == 0


def test_a_list_is_oldest_first(store: Any, clock: Any) -> None:
    session, other = make_session(store).id, make_session(store).id
    same = [make_branch(store, session).id for _ in range(3)]
    make_branch(store, other)
    clock.advance(seconds=1)
    later = make_branch(store, session, id="a").id
    early = make_branch(store, session, created_at=datetime(2020, 1, 1, tzinfo=UTC)).id
    assert listed(store, session) == [early, *same, later]
    assert listed(store, NOWHERE) == []


# ---------------------------------------------------------------- deleting


def test_a_deleted_branch_takes_its_progression_and_leaves_messages(store: Any, raw: Raw) -> None:
    branch = make_branch(store)
    pool = session_of(store, branch.session_id).progression_id
    say(store, branch.id, "a", "b")
    assert drop(store, branch.id) is True
    assert drop(store, branch.id) is False
    assert raw.rows("SELECT id FROM progressions") == [(pool,)]
    assert items(store, pool) == ["a", "b"]
    assert items(store, branch.progression_id) == []
    assert raw.count("messages") == 2


# Branches: configured by merge patches, pointed at a system message, and ended.


ENDED = ["completed", "completed_empty", "failed", "timed_out", "aborted", "cancelled"]


def patch(store: Any, id: str, given: Any) -> Branch:
    changed: Branch = store.conversations.branches.update_metadata(id, given)
    return changed


def point(store: Any, id: str, message_id: str | None) -> Branch:
    changed: Branch = store.conversations.branches.set_system_message(id, message_id)
    return changed


def end(store: Any, id: str, status: str, **options: Any) -> bool:
    return bool(store.conversations.branches.finalize(id, status, **options))


# ---------------------------------------------------------------- configuration


def test_metadata_is_changed_by_a_merge_patch(store: Any, other: Any) -> None:
    id = make_branch(store, node_metadata=CONFIG).id
    changed = patch(store, id, {"model": "n", "tools": None, "deep": {"y": None, "z": [1]}, "new": {"a": None, "b": 0}})
    assert changed.node_metadata == {"provider": "p", "model": "n", "deep": {"x": 1, "z": [1]}, "new": {"b": 0}}
    assert branch_of(other, id) == changed
    assert patch(store, id, {}) == changed


def test_where_a_branch_was_forked_never_changes(store: Any) -> None:
    child = fork(store, make_branch(store).id)
    with store.begin() as tx:
        for name in ("parent_branch_id", "forked_at_ord"):
            for pointer in (None, 1, "other"):
                assert refused(tx.conversations.branches.update_metadata, child.id, {"x": 1, name: pointer}) == f"patch.{name}"
        not_objects: list[Any] = [[], "text", 1]
        for bad in not_objects:
            assert refused(tx.conversations.branches.update_metadata, child.id, bad) == "patch"
        assert refused(tx.conversations.branches.update_metadata, child.id, {"x": {1}}) == "patch.x"
    assert branch_of(store, child.id) == child
    assert patch(store, child.id, {"x": 1}).node_metadata == {**child.node_metadata, "x": 1}


# ---------------------------------------------------------------- system message


def test_the_system_message_is_a_pointer(store: Any) -> None:
    branch = make_branch(store)
    put(store, "s", role="system")
    assert point(store, branch.id, "s").system_msg_id == "s"
    assert history(store, branch.id) == []
    assert point(store, branch.id, None) == branch


def test_a_message_that_something_names_is_not_deleted(store: Any) -> None:
    """(c) 22"""
    branch, progression = make_branch(store), make_progression(store, ["listed"])
    session = make_session(store).id
    for id in ("system", "listed", "first", "last", "free"):
        put(store, id)
    point(store, branch.id, "system")
    with store.begin() as tx:
        tx.conversations.sessions.update(session, first_msg_id="first", last_msg_id="last")
        for id in ("system", "listed", "first", "last"):
            with pytest.raises(Conflict):
                tx.conversations.messages.delete(id)
        assert tx.conversations.messages.delete("free") is True
        assert tx.conversations.messages.delete("free") is False
        for bad in [None, *NOT_LABELS]:
            assert refused(tx.conversations.messages.delete, bad) == "id"
    assert stored(store, "free") is None
    assert items(store, progression) == ["listed"]
    point(store, branch.id, None)
    with store.begin() as tx:
        tx.conversations.progressions.replace(progression, [])
        tx.conversations.sessions.update(session, first_msg_id=None, last_msg_id=None)
    assert [delete(store, id) for id in ("system", "listed", "first", "last")] == [True] * 4


# ---------------------------------------------------------------- ending


@pytest.mark.parametrize("before", [None, "running"])
def test_a_branch_ends_once(store: Any, clock: Any, raw: Raw, before: str | None) -> None:
    """(c) 24"""
    for status in ENDED:
        id = make_branch(store).id
        raw.rows("UPDATE branches SET status = ? WHERE id = ?", before, id)
        assert end(store, id, "running") is False
        assert branch_of(store, id).status == before
        at = clock.advance(seconds=5)
        assert end(store, id, status) is True
        ended = branch_of(store, id)
        assert (ended.status, ended.ended_at) == (status, at)
        clock.advance(seconds=5)
        for second in (*ENDED, "running"):
            assert end(store, id, second) is False
        assert branch_of(store, id) == ended
        transitions = raw.rows("SELECT entity_type, previous_status, status FROM status_transitions WHERE entity_id = ?", id)
        assert transitions == [("branch", before, status)]


def test_a_branch_may_have_ended_earlier(store: Any) -> None:
    at = datetime(2025, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    id = make_branch(store).id
    assert end(store, id, "failed", ended_at=at)
    assert branch_of(store, id).ended_at == at
