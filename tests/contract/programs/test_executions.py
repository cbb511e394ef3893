"""Executions: the tree, its depth, statuses, branches, loops and retries."""

from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import InvalidValue, NotFound, RecursionLimitExceeded, TransitionError
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.cases import each
from tests.contract.programs.scenes import OTHER, RUN, ask, begin, chain, do, make


@pytest.fixture(autouse=True)
def run(store: Any) -> str:
    return make(store)


def test_a_statement_executes_from_its_beginning(store: Any) -> None:
    facts = {"parallel_id": "p1", "branches": ["a", "b"]}
    begun = do(store, "executions", "begin", RUN, statement_index=5, statement_text="parallel:", metadata=facts)
    assert (begun.run_id, begun.statement_index, begun.statement_text) == (RUN, 5, "parallel:")
    assert (begun.status, begun.metadata, begun.parent_id, begun.completed_at) == ("executing", facts, None, None)
    assert begun.started_at.isoformat() == "2026-01-02T03:04:05+00:00"
    assert ask(store, "executions", "get", RUN, begun.id) == begun


def test_ids_count_up_and_children_are_below(store: Any) -> None:
    outer = begin(store)
    inner = [begin(store, parent=outer) for _ in range(3)]
    deeper = begin(store, parent=inner[0])
    assert [outer, *inner, deeper] == sorted({outer, *inner, deeper})
    assert [one.id for one in ask(store, "executions", "children", RUN, outer)] == inner
    assert ask(store, "executions", "children", RUN, deeper) == []
    assert ask(store, "executions", "depth", RUN, deeper) == 3
    assert [one.id for one in ask(store, "executions", "list", RUN)] == [outer, *inner, deeper]


def test_runs_do_not_see_each_other(store: Any) -> None:
    make(store, OTHER)
    mine, theirs = begin(store), begin(store, OTHER)
    assert [one.id for one in ask(store, "executions", "list", OTHER)] == [theirs]
    if mine != theirs:
        for verb in ("get", "children", "depth"):
            with pytest.raises(NotFound):
                ask(store, "executions", verb, OTHER, mine)


def test_the_hundred_and_first_level_is_refused(store: Any) -> None:
    deepest = chain(store, 100)[-1]
    with pytest.raises(RecursionLimitExceeded) as caught:
        begin(store, parent=deepest)
    assert (caught.value.depth, caught.value.limit) == (101, 100)
    assert len(ask(store, "executions", "list", RUN)) == 100


def test_the_depth_limit_is_a_setting(open_store: Callable[..., Any]) -> None:
    shallow = open_store(settings=Settings(max_depth=3))
    deepest = chain(shallow, 3)[-1]
    with pytest.raises(RecursionLimitExceeded):
        begin(shallow, parent=deepest)
    begin(shallow)


@each("verb", ["complete", "fail", "skip"])
def test_what_executes_ends_once(store: Any, clock: FrozenClock, verb: str) -> None:
    id = begin(store)
    clock.advance(seconds=7)
    args = ["Connection timeout"] if verb == "fail" else []
    ended = do(store, "executions", verb, RUN, id, *args)
    assert ended.status == {"complete": "completed", "fail": "failed", "skip": "skipped"}[verb]
    assert (ended.completed_at - ended.started_at).total_seconds() == 7.0
    assert ended.error_message == (args[0] if args else None)
    for again in ("start", "complete", "skip"):
        with pytest.raises(TransitionError):
            do(store, "executions", again, RUN, id)


def test_pending_statements_start_later(store: Any, clock: FrozenClock) -> None:
    id = begin(store, status="pending")
    assert ask(store, "executions", "get", RUN, id).started_at is None
    with pytest.raises(TransitionError):
        do(store, "executions", "complete", RUN, id)
    clock.advance(seconds=60)
    started = do(store, "executions", "start", RUN, id)
    assert (started.status, started.started_at.isoformat()) == ("executing", "2026-01-02T03:05:05+00:00")
    with pytest.raises(TransitionError):
        do(store, "executions", "start", RUN, id)
    waiting = begin(store, status="pending")
    assert [one.id for one in ask(store, "executions", "list", RUN, status="pending")] == [waiting]
    assert do(store, "executions", "skip", RUN, waiting).status == "skipped"


def test_metadata_is_merged(store: Any) -> None:
    id = begin(store, metadata={"a": 1, "b": {"c": 2, "d": 3}})
    merged = do(store, "executions", "update", RUN, id, {"a": None, "b": {"c": 9}, "e": [1]})
    assert merged.metadata == {"b": {"c": 9, "d": 3}, "e": [1]}
    with pytest.raises(InvalidValue):
        do(store, "executions", "update", RUN, id, [1])


def test_pending_branches_are_those_that_have_not_ended(store: Any) -> None:
    """The block's own row is no branch, and a failed branch is not pending any more."""
    block = begin(store, metadata={"parallel_id": "p1", "strategy": "all", "branches": ["a", "b", "c"]})
    ids = {name: begin(store, parent=block, metadata={"parallel_id": "p1", "branch": name}) for name in "abc"}
    begin(store, metadata={"parallel_id": "p2", "branch": "a"})
    counts = [ask(store, "executions", "pending_branches", RUN, "p1")]
    for verb, name, args in (("complete", "a", []), ("fail", "c", ["no"]), ("skip", "b", [])):
        do(store, "executions", verb, RUN, ids[name], *args)
        counts.append(ask(store, "executions", "pending_branches", RUN, "p1"))
    assert counts == [3, 2, 1, 0]
    assert ask(store, "executions", "branches", RUN, "p1") == {"a": "completed", "b": "skipped", "c": "failed"}


def test_a_loop_counts_up_to_its_maximum(store: Any) -> None:
    id = begin(store, metadata={"loop_id": "l1", "max_iterations": 2, "current_iteration": 0})
    for number in (1, 2):
        assert do(store, "executions", "set_iteration", RUN, id, number).metadata["current_iteration"] == number
    with pytest.raises(InvalidValue):
        do(store, "executions", "set_iteration", RUN, id, 3)
    free = begin(store, metadata={"loop_id": "l2"})
    assert do(store, "executions", "set_iteration", RUN, free, 1000).metadata["current_iteration"] == 1000


def test_a_retry_executes_what_failed_again(store: Any) -> None:
    id = begin(store)
    for attempt in (1, 2):
        do(store, "executions", "fail", RUN, id, f"try {attempt}")
        again = do(store, "executions", "record_retry", RUN, id, attempt=attempt, max_retries=2)
        assert (again.status, again.completed_at, again.error_message) == ("executing", None, f"try {attempt}")
        assert again.metadata == {"retry_attempt": attempt, "max_retries": 2}
    with pytest.raises(InvalidValue):
        do(store, "executions", "record_retry", RUN, id, attempt=3, max_retries=2)
    assert do(store, "executions", "complete", RUN, id).status == "completed"
