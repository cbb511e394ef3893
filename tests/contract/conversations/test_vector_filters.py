"""Search by embedding in a session, in a branch, and on connections of the caller's."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine

from persist import Store
from persist.errors import NotFound
from tests.contract.conversations.scenes import NOWHERE, fork, make_branch, make_progression, message
from tests.contract.conversations.vector_scenes import NEAR, backend_of, found, keep, search

# ---------------------------------------------------------------- filters


def test_a_sessions_pool_is_searched_alone(way: str, store: Any) -> None:
    ours, theirs = make_branch(store).session_id, make_branch(store).session_id
    keep(store, ours, a=[1.0, 0.0], both=[1.0, 0.1])
    keep(store, theirs, b=[1.0, 0.0], both=[1.0, 0.1])
    keep(store, nobodys=[1.0, 0.0])
    assert found(store, session_id=ours) == ["a", "both"]
    assert found(store, session_id=theirs) == ["b", "both"]
    assert found(store) == ["a", "b", "nobodys", "both"]


def test_a_branch_is_searched_with_what_it_inherits(way: str, store: Any) -> None:
    parent = make_branch(store)
    with store.begin() as tx:
        for id, north in (("first", 0.1), ("second", 0.2)):
            tx.conversations.messages.record(parent.id, message(id, embedding=[1.0, north]))
    child = fork(store, parent.id, at=1)
    grandchild = fork(store, child.id)
    with store.begin() as tx:
        tx.conversations.messages.record(parent.id, message("later", embedding=[1.0, 0.0]))
        tx.conversations.messages.record(grandchild.id, message("own", embedding=[1.0, 0.3]))
    assert found(store, branch_id=parent.id) == ["later", "first", "second"]
    assert found(store, branch_id=child.id) == ["first"]
    assert found(store, branch_id=grandchild.id) == ["first", "own"]


def test_session_and_branch_together_are_what_is_in_both(way: str, store: Any) -> None:
    pool = make_progression(store, ["a", "b"])
    with store.begin() as tx:
        session = tx.conversations.sessions.create(progression_id=pool)
        own = tx.conversations.branches.create(session.id, progression_id=tx.conversations.progressions.create(ids=["b", "c"]))
    keep(store, a=[1.0, 0.0], b=[0.5, 1.0], c=[1.0, 0.0])
    assert found(store, session_id=session.id) == ["a", "b"]
    assert found(store, branch_id=own.id) == ["c", "b"]
    assert found(store, session_id=session.id, branch_id=own.id) == ["b"]


def test_a_message_counts_once_however_often_it_is_named(way: str, store: Any) -> None:
    """Nor does one that is named and not there."""
    named = make_progression(store, ["a", "a", "gone", "b", "a"])
    with store.begin() as tx:
        session = tx.conversations.sessions.create(progression_id=named)
        branch = tx.conversations.branches.create(session.id, progression_id=named)
    keep(store, a=[1.0, 0.0], b=[0.0, 1.0])
    for filters in ({"session_id": session.id}, {"branch_id": branch.id}):
        assert found(store, k=2, **filters) == ["a", "b"]


def test_an_empty_session_or_branch_has_nothing(way: str, store: Any) -> None:
    branch = make_branch(store)
    keep(store, a=NEAR)
    assert found(store, session_id=branch.session_id) == found(store, branch_id=branch.id) == []


@pytest.mark.parametrize(("filters", "kind"), [({"session_id": NOWHERE}, "session"), ({"branch_id": NOWHERE}, "branch")])
def test_an_unknown_session_or_branch_is_not_found(store: Any, filters: dict[str, str], kind: str) -> None:
    with pytest.raises(NotFound) as error:
        search(store, NEAR, **filters)
    assert (error.value.kind, error.value.id) == (kind, NOWHERE)


# ---------------------------------------------------------------- connections of the caller's


@pytest.fixture
def host(database_url: str) -> Iterator[Any]:
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://", 1))
    yield engine
    engine.dispose()


@pytest.mark.parametrize("face", ["sync"])
@pytest.mark.parametrize("isolation", ["SERIALIZABLE", "AUTOCOMMIT"])
def test_a_callers_connection_is_searched_and_taught_nothing(way: str, store: Any, host: Any, isolation: str) -> None:
    """The async join runs the same verbs through SQLAlchemy's own bridge."""
    branch = make_branch(store)
    keep(store, branch.session_id, a=[1.0, 0.0], b=[0.0, 1.0])
    expected = search(store, NEAR, session_id=branch.session_id)
    with host.connect() as connection:
        vectors = store.join(connection.execution_options(isolation_level=isolation)).conversations.vectors
        assert vectors.backend() == ("python" if way == "python" else "numpy")
        assert [(one.id, distance) for one, distance in vectors.search(NEAR, session_id=branch.session_id)] == expected


@pytest.mark.parametrize("face", ["sync"])
def test_a_callers_engine_is_searched_and_taught_nothing(way: str, store: Any, host: Any, backend: str) -> None:
    branch = make_branch(store)
    keep(store, branch.session_id, a=[1.0, 0.0], b=[0.0, 1.0])
    with Store.from_engine(host) as theirs:
        assert backend_of(theirs) == ("python" if way == "python" else "numpy")
        assert search(theirs, NEAR, branch_id=branch.id) == search(store, NEAR, branch_id=branch.id) == []
        assert search(theirs, NEAR) == search(store, NEAR)
