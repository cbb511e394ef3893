"""Agents: memory, fresh starts and resumed ones, segments."""

import logging
from contextlib import suppress
from typing import Any

import pytest

from persist.errors import NotFound, UnreadableRow
from persist.testing import FrozenClock
from tests.contract.programs.scenes import OTHER, RUN, ask, do, make


@pytest.fixture(autouse=True)
def run(store: Any) -> str:
    return make(store)


def test_starting_makes_the_row_that_a_subagent_will_update(store: Any, raw: Any) -> None:
    agent = do(store, "agents", "start", RUN, "captain", resume=False, scope="project")
    assert (agent.name, agent.scope, agent.memory) == ("captain", "project", None)
    raw.rows("UPDATE agents SET memory = 'written raw' WHERE name = 'captain'")
    assert ask(store, "agents", "recall", RUN, "captain").memory == "written raw"


def test_resuming_needs_a_memory(store: Any) -> None:
    with pytest.raises(NotFound):
        do(store, "agents", "start", RUN, "captain", resume=True)
    do(store, "agents", "start", RUN, "captain", resume=False)
    with pytest.raises(NotFound):
        do(store, "agents", "start", RUN, "captain", resume=True)
    do(store, "agents", "remember", RUN, "captain", "the plan")
    assert do(store, "agents", "start", RUN, "captain", resume=True).memory == "the plan"


def test_a_fresh_start_over_a_memory_warns_and_is_fresh(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    do(store, "agents", "remember", RUN, "captain", "the plan")
    do(store, "agents", "add_segment", RUN, "captain", prompt="p", summary="s")
    with caplog.at_level(logging.WARNING, logger="persist"):
        agent = do(store, "agents", "start", RUN, "captain", resume=False)
    assert agent.memory is None
    assert "captain" in caplog.text
    assert ask(store, "agents", "recall", RUN, "captain") == agent
    assert len(ask(store, "agents", "segments", RUN, "captain")) == 1
    caplog.clear()
    do(store, "agents", "start", RUN, "captain", resume=False)
    assert caplog.text == ""


def test_memory_is_replaced(store: Any, clock: FrozenClock) -> None:
    first = do(store, "agents", "remember", RUN, "captain", "one", scope="user")
    clock.advance(seconds=4)
    second = do(store, "agents", "remember", RUN, "captain", "it's \ud800 two")
    assert (second.memory, second.scope, second.created_at) == ("it's \ud800 two", "user", first.created_at)
    assert (second.updated_at - first.updated_at).total_seconds() == 4.0
    assert ask(store, "agents", "list", RUN) == [second]
    assert ask(store, "agents", "recall", OTHER, "captain") is None


def test_segments_count_from_one_per_agent(store: Any) -> None:
    for name in ("captain", "mate"):
        do(store, "agents", "start", RUN, name, resume=False)
    numbers = [
        do(store, "agents", "add_segment", RUN, name, prompt="p", summary="s").segment_number
        for name in ("captain", "captain", "mate", "captain")
    ]
    assert numbers == [1, 2, 1, 3]
    segments = ask(store, "agents", "segments", RUN, "captain")
    assert [(one.segment_number, one.prompt, one.run_id) for one in segments] == [(n, "p", RUN) for n in (1, 2, 3)]
    assert ask(store, "agents", "segments", RUN, "nobody") == []
    with pytest.raises(NotFound):
        do(store, "agents", "add_segment", RUN, "nobody", prompt="p", summary="s")


def test_agents_of_a_run_that_is_gone_are_still_read(store: Any, raw: Any) -> None:
    do(store, "agents", "remember", RUN, "captain", "the plan")
    segment = do(store, "agents", "add_segment", RUN, "captain", prompt="p", summary="s")
    raw.rows("DELETE FROM run")
    assert ask(store, "agents", "recall", RUN, "captain").memory == "the plan"
    assert [one.name for one in ask(store, "agents", "list", RUN)] == ["captain"]
    assert ask(store, "agents", "segments", RUN, "captain") == [segment]
    with pytest.raises(NotFound):
        do(store, "agents", "remember", RUN, "captain", "another")
    assert ask(store, "agents", "recall", RUN, "captain").memory == "the plan"


@pytest.mark.parametrize("scope", ["project", "user"])
def test_agents_of_a_project_or_a_user_need_no_run(store: Any, scope: str) -> None:
    """As they are in a database that such a file was copied to."""
    remembered = do(store, "agents", "remember", scope, "captain", "m", scope=scope)
    assert ask(store, "agents", "recall", scope, "captain") == remembered
    assert ask(store, "runs", "audit", scope) == []


def test_a_refused_memory_is_not_written_though_the_row_has_an_unreadable_cell(store: Any, raw: Any, backend: str) -> None:
    store.programs.agents.remember(RUN, "captain", "one")
    unreadable = "x'ff'" if backend == "sqlite" else "'infinity'"
    raw.rows(f"UPDATE agents SET created_at = {unreadable} WHERE name = 'captain'")
    kept = "one"
    with suppress(UnreadableRow):
        kept = store.programs.agents.remember(RUN, "captain", "two").memory
    assert raw.rows("SELECT memory FROM agents") == [(kept,)]
