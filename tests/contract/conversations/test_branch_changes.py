"""Branches: configured by merge patches, pointed at a system message, and ended."""

from datetime import UTC, datetime
from typing import Any

import pytest

from persist.conversations.schemas import Branch
from persist.errors import Conflict, InvalidValue
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
    stored,
)

ENDED = ["completed", "completed_empty", "failed", "timed_out", "aborted", "cancelled"]
CONFIG = {"provider": "p", "model": "m", "tools": ["a"], "deep": {"x": 1, "y": 2}}


def patch(store: Any, id: str, given: Any) -> Branch:
    with store.begin() as tx:
        changed: Branch = tx.conversations.branches.update_metadata(id, given)
    return changed


def point(store: Any, id: str, message_id: str | None) -> Branch:
    with store.begin() as tx:
        changed: Branch = tx.conversations.branches.set_system_message(id, message_id)
    return changed


def end(store: Any, id: str, status: str, **options: Any) -> bool:
    with store.begin() as tx:
        return bool(tx.conversations.branches.finalize(id, status, **options))


# ---------------------------------------------------------------- configuration


def test_metadata_is_changed_by_a_merge_patch(store: Any, other: Any) -> None:
    id = make_branch(store, node_metadata=CONFIG).id
    changed = patch(store, id, {"model": "n", "tools": None, "deep": {"y": None, "z": [1]}, "new": {"a": None, "b": 0}})
    assert changed.node_metadata == {"provider": "p", "model": "n", "deep": {"x": 1, "z": [1]}, "new": {"b": 0}}
    assert branch_of(other, id) == changed
    assert patch(store, id, {}) == changed


def test_patches_of_two_handles_both_stay(store: Any, other: Any) -> None:
    """(d) 2"""
    id = make_branch(store).id
    assert branch_of(store, id) == branch_of(other, id)
    patch(store, id, {"a": 1})
    assert patch(other, id, {"b": {"c": 2}}).node_metadata == {"a": 1, "b": {"c": 2}}


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


def test_an_unknown_message_is_not_pointed_at(store: Any) -> None:
    branch = make_branch(store)
    with store.begin() as tx:
        with pytest.raises(Conflict):
            tx.conversations.branches.set_system_message(branch.id, NOWHERE)
        for bad in NOT_LABELS:
            assert refused(tx.conversations.branches.set_system_message, branch.id, bad) == "message_id"
    assert branch_of(store, branch.id) == branch


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


def test_a_bad_end_is_refused(store: Any) -> None:
    branch = make_branch(store)
    with store.begin() as tx:
        for status in ("done", "", None, 1, "COMPLETED"):
            assert refused(tx.conversations.branches.finalize, branch.id, status) == "status"
        assert refused(tx.conversations.branches.finalize, branch.id, "failed", ended_at=1.5) == "ended_at"
        with pytest.raises(InvalidValue):
            tx.conversations.branches.finalize("", "failed")
    assert branch_of(store, branch.id) == branch
