"""What branches are called, when they began, and what became of them: written, read and kept in a history, as of sessions."""

from typing import Any

import pytest

from persist.conversations.schemas import Branch, StatusTransition
from persist.errors import Conflict, InvalidValue, NotFound, TransitionError
from tests.contract.conftest import Raw
from tests.contract.conversations.making import AT, branch_of, branches, dump, fork, make_branch, make_session, say, shown


def update(store: Any, id: str, **columns: Any) -> Branch:
    changed: Branch = store.conversations.branches.update(id, **columns)
    return changed


def set_status(store: Any, id: str, status: Any, **options: Any) -> bool:
    return bool(store.conversations.branches.set_status(id, status, **options))


def transitions(store: Any, id: str) -> list[StatusTransition]:
    found: list[StatusTransition] = store.conversations.branches.transitions(id)
    return found


@pytest.fixture
def branch(store: Any) -> str:
    """A branch with a name and metadata."""
    return make_branch(store, make_session(store, "s").id, "b", name="first", user="anna", node_metadata={"model": "m"})


def test_a_branch_is_renamed_and_nothing_else_changes(store: Any, other: Any, branch: str) -> None:
    before = branch_of(store, branch)
    changed = update(store, branch, name="second")
    assert changed == branch_of(other, branch) == before.model_copy(update={"name": "second"})
    changed = update(store, branch, name=None, user="bert", started_at=AT, ended_at=AT)
    wanted = {"name": None, "user": "bert", "started_at": AT, "ended_at": AT}
    assert changed == branch_of(other, branch) == before.model_copy(update=wanted)
    assert update(store, branch) == changed


def test_what_cannot_be_changed_is_named_and_nothing_is_written(store: Any, raw: Raw, branch: str) -> None:
    before = dump(raw)
    bad: list[tuple[str, Any]] = [
        ("name", 1),
        ("user", ""),
        ("started_at", 1.5),
        ("ended_at", AT.replace(tzinfo=None)),
        ("session_id", "t"),
        ("parent_branch_id", None),
        ("node_metadata", {}),
        ("status", "failed"),
    ]
    with store.begin() as tx:
        for name, value in bad:
            with pytest.raises(InvalidValue) as refused:
                tx.conversations.branches.update(branch, **{name: value})
            assert refused.value.path == name
        with pytest.raises(NotFound):
            tx.conversations.branches.update("nowhere", name="x")
    assert dump(raw) == before


def test_a_branch_that_runs_began_then(store: Any, clock: Any) -> None:
    session = make_session(store).id
    running = branch_of(store, make_branch(store, session, status="running"))
    assert (running.status, running.started_at, running.ended_at) == ("running", clock(), None)
    given = branch_of(store, make_branch(store, session, status="running", started_at=AT))
    assert given.started_at == AT
    ended = branch_of(store, make_branch(store, session, status="failed"))
    assert (ended.started_at, ended.ended_at) == (None, clock())
    plain = make_branch(store, session)
    assert branch_of(store, plain).started_at is None
    clock.advance(seconds=5)
    assert set_status(store, plain, "running")
    assert branch_of(store, plain).started_at == clock()
    with store.begin() as tx, pytest.raises(InvalidValue):
        tx.conversations.branches.create(session, status="over")


def test_every_change_is_a_row_of_its_history(store: Any, other: Any, clock: Any, branch: str) -> None:
    assert transitions(store, branch) == []
    assert set_status(store, branch, "running", expected=[None])
    assert not set_status(store, branch, "failed", expected=[None])
    clock.advance(seconds=1)
    refs = ["trace-1", {"line": 7}]
    assert set_status(store, branch, "failed", reason="boom", reason_code="tool", evidence_refs=refs, actor="maria")
    assert (branch_of(other, branch).status, branch_of(other, branch).ended_at) == ("failed", clock())
    with pytest.raises(TransitionError):
        set_status(store, branch, "running")
    assert set_status(store, branch, "running", override="again", actor="maria")
    assert branch_of(other, branch).ended_at is None
    assert store.conversations.branches.finalize(branch, "completed")
    rows = transitions(other, branch)
    told = [(row.previous_status, row.status) for row in rows]
    assert told == [(None, "running"), ("running", "failed"), ("failed", "running"), ("running", "completed")]
    assert {(row.entity_type, row.entity_id) for row in rows} == {("branch", branch)}
    assert (rows[1].reason_summary, rows[1].reason_code, rows[1].evidence_refs) == ("boom", "tool", refs)
    assert (rows[1].actor, rows[2].metadata) == ("maria", {"override": "again"})


def test_a_fork_takes_the_id_it_is_given_once(store: Any, branch: str) -> None:
    say(store, branch, "m1", "m2")
    made = store.conversations.branches.fork(branch, at=1, new_id="f", name="fork")
    say(store, "f", "m3")
    with store.begin() as tx:
        assert tx.conversations.branches.fork(branch, new_id="f") == made
        assert tx.conversations.branches.fork(branch, at=1, new_id="f", name="another") == made
        for parent, at in ((branch, 2), ("f", None)):
            with pytest.raises(Conflict):
                tx.conversations.branches.fork(parent, at=at, new_id="f")
        with pytest.raises(Conflict):
            tx.conversations.branches.fork("f", new_id=branch)
        with pytest.raises(InvalidValue):
            tx.conversations.branches.fork(branch, new_id="")
    assert branches(store, "s") == [branch, "f"]
    assert shown(store, "f") == ["m1", "m3"]
    assert fork(store, branch) not in (branch, "f")
