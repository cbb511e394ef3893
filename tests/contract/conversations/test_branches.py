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
    message,
    numbered,
    put,
    put_many,
    refused,
    say,
    session_of,
    stored,
    talk,
)

CONFIG = {"provider": "p", "model": "m", "tools": ["a"], "deep": {"x": 1, "y": 2}}


def listed(store: Any, session_id: str) -> list[str]:
    return [branch.id for branch in store.conversations.branches.list(session_id)]


def drop(store: Any, id: str) -> bool:
    return bool(store.conversations.branches.delete(id))


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


def test_the_system_message_is_a_pointer(store: Any) -> None:
    branch = make_branch(store)
    put(store, "s", role="system")
    assert point(store, branch.id, "s").system_msg_id == "s"
    assert history(store, branch.id) == []
    assert point(store, branch.id, None) == branch


def test_a_message_that_something_names_is_not_deleted(store: Any) -> None:
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


@pytest.mark.parametrize("before", [None, "running"])
def test_a_branch_ends_once(store: Any, clock: Any, raw: Raw, before: str | None) -> None:
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


# Forks: branches that begin with what another one shows, and circles of them, which no verb makes.


def test_a_fork_shows_what_it_inherits_and_its_own(store: Any, raw: Raw) -> None:
    root = talk(store, 25, prefix="r")
    child = fork(store, root.id, at=12)
    assert raw.count("messages") == 25
    put_many(store, [message(id) for id in numbered(18, 25, "r")], progression_ids=[root.progression_id])
    assert history(store, child.id) == numbered(12, prefix="r")
    say(store, child.id, "own 1", "own 2")
    assert history(store, child.id) == [*numbered(12, prefix="r"), "own 1", "own 2"]
    assert history(store, root.id) == numbered(43, prefix="r")
    assert items(store, child.progression_id) == ["own 1", "own 2"]


def test_a_fork_at_0_has_nothing_but_its_own(store: Any) -> None:
    child = fork(store, talk(store, 5).id, at=0)
    assert history(store, child.id) == []
    say(store, child.id, "own")
    assert history(store, child.id) == ["own"]
    assert history(store, fork(store, child.id).id) == ["own"]


def test_without_a_place_a_fork_inherits_all(store: Any) -> None:
    root = talk(store, 5)
    child = fork(store, root.id)
    say(store, child.id, "c")
    grandchild = fork(store, child.id)
    say(store, root.id, "later")
    assert history(store, child.id) == history(store, grandchild.id) == [*numbered(5), "c"]
    assert (child.forked_at_ord, grandchild.forked_at_ord) == (5, 6)
    assert fork(store, make_branch(store).id).forked_at_ord == 0


def test_a_fork_takes_after_its_parent(store: Any, raw: Raw, clock: Any) -> None:
    put(store, "s", role="system")
    root = make_branch(store, name="Main", user="ada", node_metadata={"model": "m", "tools": []}, system_msg_id="s")
    say(store, root.id, "a")
    at = clock.advance(seconds=5)
    child = fork(store, root.id, name="Other")
    pointers = {"parent_branch_id": root.id, "forked_at_ord": 1}
    assert child.model_dump() == {
        **root.model_dump(),
        **pointers,
        "id": child.id,
        "created_at": at,
        "name": "Other",
        "progression_id": child.progression_id,
        "node_metadata": {"model": "m", "tools": [], **pointers},
    }
    assert branch_of(store, child.id) == child
    assert fork(store, root.id).name is None
    assert raw.json("SELECT node_metadata FROM branches WHERE id = ?", child.id) == child.node_metadata
    grandchild = fork(store, child.id)
    assert (grandchild.parent_branch_id, grandchild.node_metadata["parent_branch_id"]) == (child.id, child.id)


def test_a_fork_beyond_the_end_is_refused(store: Any, raw: Raw) -> None:
    root = talk(store, 3)
    child = fork(store, root.id, at=2)
    with store.begin() as tx:
        for id, places in ((root.id, (4, -1, 2**70, True, 1.0, "1")), (child.id, (3, -1))):
            for at in places:
                assert refused(tx.conversations.branches.fork, id, at=at) == "at"
        assert refused(tx.conversations.branches.fork, root.id, name=5) == "name"
    assert (raw.count("branches"), raw.count("progressions")) == (2, 3)
    assert fork(store, child.id, at=2).forked_at_ord == 2


def test_a_branch_copied_with_its_pointers_is_a_fork(store: Any) -> None:
    """Metadata as published, of a branch that comes from elsewhere; its parent may come later, or never."""
    session = make_session(store).id
    child = make_branch(store, session, node_metadata={"parent_branch_id": "root", "forked_at_ord": 2})
    say(store, child.id, "own")
    assert (child.parent_branch_id, child.forked_at_ord) == ("root", 2)
    assert history(store, child.id) == ["own"]
    root = make_branch(store, session, id="root")
    say(store, root.id, *numbered(3))
    assert history(store, child.id) == [*numbered(2), "own"]
    empty = make_branch(store, session, id="empty")
    copied = make_branch(store, session, node_metadata={"parent_branch_id": "empty", "forked_at_ord": 2})
    say(store, empty.id, "x", "y", "z")
    assert history(store, copied.id) == ["x", "y"]


def join(raw: Raw, child: str, parent: str, at: int) -> None:
    raw.rows("UPDATE branches SET parent_branch_id = ?, forked_at_ord = ? WHERE id = ?", parent, at, child)


@pytest.mark.parametrize("said", [0, 3])
def test_a_circle_of_parents_is_a_conflict(store: Any, raw: Raw, said: int) -> None:
    session = make_session(store).id
    a, b, c = (talk(store, said, session, prefix=name).id for name in "abc")
    leaf, stranger = fork(store, a).id, talk(store, 2, session, prefix="s").id
    say(store, leaf, "leaf")
    for at in (1, 2, 3, 50):
        for circle in ([a], [a, b], [a, b, c]):
            for child, parent in zip(circle, [*circle[1:], circle[0]], strict=True):
                join(raw, child, parent, at)
            join(raw, leaf, a, max(1, at - 1))
            for branch in (*circle, leaf):
                for options in ({}, {"limit": 1}, {"before": 1}, {"limit": 2, "before": 2}):
                    with store.read() as tx, pytest.raises(Conflict):
                        tx.conversations.branches.history(branch, **options)
            assert history(store, stranger) == numbered(2, prefix="s")


def test_a_circle_of_different_places_is_a_conflict_too(store: Any, raw: Raw) -> None:
    session = make_session(store).id
    a, b = (talk(store, 5, session, prefix=name).id for name in "ab")
    for first, second in ((1, 4), (4, 1), (5, 5), (7, 2)):
        join(raw, a, b, first)
        join(raw, b, a, second)
        for branch in (a, b):
            with store.read() as tx, pytest.raises(Conflict):
                tx.conversations.branches.history(branch)


def test_a_circle_is_broken_by_deleting_one_of_it(store: Any, raw: Raw) -> None:
    session = make_session(store).id
    a, b = (talk(store, 3, session, prefix=name).id for name in "ab")
    join(raw, a, b, 2)
    join(raw, b, a, 2)
    assert store.conversations.branches.delete(a)
    assert history(store, b)[-3:] == numbered(3, prefix="b")


def test_no_verb_makes_a_circle(store: Any, raw: Raw) -> None:
    session = make_session(store).id

    def pointing_at(parent: str) -> dict[str, Any]:
        return {"node_metadata": {"parent_branch_id": parent, "forked_at_ord": 1}}

    make_branch(store, session, id="a", **pointing_at("c"))
    make_branch(store, session, id="b", **pointing_at("a"))
    progressions = raw.count("progressions")
    with store.begin() as tx:
        for id, parent in (("c", "b"), ("c", "a"), ("d", "d")):
            with pytest.raises(Conflict):
                tx.conversations.branches.create(session, id=id, **pointing_at(parent))
        tx.conversations.branches.create(session, id="c", **pointing_at("elsewhere"))  # the transaction is still good
    assert raw.count("progressions") == progressions + 1
    say(store, "c", "c")
    assert [history(store, id) for id in "abc"] == [[], [], ["c"]]
