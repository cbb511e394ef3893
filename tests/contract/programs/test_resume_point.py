"""The resume point: what a virtual machine needs to go on."""

from typing import Any

from tests.contract.programs.scenes import OTHER, RUN, ask, begin, bind, do, make


def test_it_has_what_was_under_way(store: Any) -> None:
    make(store)
    make(store, OTHER)
    begin(store, OTHER)
    done = begin(store)
    do(store, "executions", "complete", RUN, done)
    facts = {"parallel_id": "p1", "strategy": "any", "count": 2, "on_fail": "continue", "branches": ["a", "b", "c"]}
    block = begin(store, metadata=facts)
    first = begin(store, parent=block, metadata={"parallel_id": "p1", "branch": "a"})
    do(store, "executions", "fail", RUN, first, "no")
    again = begin(store, parent=block, metadata={"parallel_id": "p1", "branch": "a"})
    second = begin(store, parent=block, metadata={"parallel_id": "p1", "branch": "b"})
    do(store, "executions", "complete", RUN, second)
    loop = begin(store, metadata={"loop_id": "l1", "max_iterations": 5, "current_iteration": 2, "condition": "**done**"})
    over = begin(store, metadata={"loop_id": "l2"})
    do(store, "executions", "skip", RUN, over)
    bound = bind(store, "x", "1")
    agent = do(store, "agents", "remember", RUN, "captain", "m")
    point = ask(store, "runs", "resume_point", RUN)
    assert point.run == ask(store, "runs", "get", RUN)
    assert [one.id for one in point.executing] == [loop, again, block]
    assert (point.bindings, point.agents) == ([bound], [agent])
    assert [one.model_dump() for one in point.parallel] == [
        {
            "parallel_id": "p1",
            "execution_id": block,
            "strategy": "any",
            "count": 2,
            "on_fail": "continue",
            "branches": {"a": "executing", "b": "completed", "c": "pending"},
        }
    ]
    assert [one.model_dump() for one in point.loops] == [
        {"loop_id": "l1", "execution_id": loop, "current_iteration": 2, "max_iterations": 5, "condition": "**done**"}
    ]


def test_frames_may_use_the_same_parallel_id(store: Any) -> None:
    make(store)
    blocks = [begin(store, metadata={"parallel_id": "p1", "branches": ["a"]}) for _ in range(2)]
    begin(store, parent=blocks[0], metadata={"parallel_id": "p1", "branch": "a"})
    point = ask(store, "runs", "resume_point", RUN)
    assert [(one.execution_id, one.branches) for one in point.parallel] == [
        (blocks[0], {"a": "executing"}),
        (blocks[1], {"a": "pending"}),
    ]


def test_a_run_that_did_nothing_yet(store: Any) -> None:
    make(store)
    point = ask(store, "runs", "resume_point", RUN)
    assert (point.executing, point.bindings, point.agents, point.parallel, point.loops) == ([], [], [], [], [])
