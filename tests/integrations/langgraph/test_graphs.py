"""The framework's own runner over PersistSaver: killed and resumed, interrupted and answered, moved there and back."""

import asyncio
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from persist import AsyncStore, Store
from persist.integrations.langgraph import PersistSaver, PersistStore
from persist.maintenance import copy, prune
from persist.testing import FrozenClock
from tests.integrations.langgraph.graphs import HARD, TURNS, build
from tests.integrations.langgraph.scenes import seen

AT: RunnableConfig = {"configurable": {"thread_id": "thread"}}
STEPS = ["model", "tool"] * TURNS + ["model"]


def given() -> dict[str, Any]:
    return {"messages": [HumanMessage(HARD, id="first")]}


def said(values: Any) -> list[tuple[str, Any]]:
    return [(message.id, message.content) for message in values["messages"]]


@pytest.fixture
def expected() -> dict[str, Any]:
    """What the graph comes to over the in-memory saver."""
    return dict(build(InMemorySaver()).invoke(given(), AT))


@pytest.mark.long
@pytest.mark.parametrize("cut", [1, 2, 5, 8, 12])
def test_a_killed_graph_is_resumed_where_it_was(
    spawn: Callable[..., subprocess.Popen[str]], database_url: str, expected: dict[str, Any], cut: int
) -> None:
    killed = spawn("run", "thread")
    assert killed.stdout is not None
    before = [killed.stdout.readline().strip() for _ in range(cut)]
    killed.send_signal(signal.SIGKILL)
    before += killed.stdout.read().split("\n")[:-1]
    killed.wait(30)
    resumed = spawn("run", "thread")
    assert resumed.stdout is not None
    after = resumed.stdout.read().split("\n")[:-1]
    assert resumed.wait(60) == 0
    # the step that was cut off runs again, and no other
    assert [step for step in after if step in before] in ([], before[-1:])
    assert list(dict.fromkeys([*before, *after])) == [f"{STEPS[n]} {n // 2}" for n in range(len(STEPS))]
    with Store.open(database_url) as store:
        values = build(PersistSaver(store)).get_state(AT).values
        assert said(values) == said(expected)
        assert values["steps"] == STEPS
    if database_url.startswith("sqlite"):
        connection = sqlite3.connect(database_url.removeprefix("sqlite:///"))
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


def test_a_graph_of_coroutines_runs_over_both_faces(database_url: str, expected: dict[str, Any]) -> None:
    async def run(store: Any, thread: str) -> Any:
        graph = build(PersistSaver(store), store=PersistStore(store))
        return await graph.ainvoke(given(), {"configurable": {"thread_id": thread}})

    async def both() -> Any:
        async with AsyncStore.open(database_url) as store:
            with Store.open(database_url) as other:
                return await asyncio.gather(run(store, "one"), run(other, "two"))

    assert [said(result) for result in asyncio.run(both())] == [said(expected)] * 2


def test_a_question_waits_for_its_answer_in_the_database(database_url: str) -> None:
    with Store.open(database_url) as store:
        build(PersistSaver(store), ask=True).invoke(given(), AT)
    with Store.open(database_url) as store:
        graph = build(PersistSaver(store), ask=True)
        (waiting,) = graph.get_state(AT).interrupts
        assert waiting.value == {"question": HARD}
        assert graph.invoke(Command(resume=HARD), AT)["messages"][-1].content == f"done: {HARD}"


def test_the_history_is_that_of_the_in_memory_saver(database_url: str) -> None:
    def history(saver: BaseCheckpointSaver[str]) -> list[Any]:
        graph = build(saver)
        graph.invoke(given(), AT)
        middle = list(graph.get_state_history(AT))[5]
        graph.update_state(middle.config, {"steps": ["forked"]})
        return [
            (said(one.values), one.values["steps"], one.next, one.metadata) for one in graph.get_state_history(AT) if one.values
        ]

    with Store.open(database_url) as store:
        ours, reference = history(PersistSaver(store)), history(InMemorySaver())
    # a step's parents name ids, which differ
    assert [one[:3] for one in ours] == [one[:3] for one in reference]
    assert [one[3].get("step") for one in ours] == [one[3].get("step") for one in reference]


def moved(source: BaseCheckpointSaver[str], target: BaseCheckpointSaver[str]) -> None:
    """Everything of one saver put into another, through the interface that all have."""
    for one in reversed(list(source.list(None))):
        at: Any = one.parent_config or {"configurable": {**one.config["configurable"], "checkpoint_id": None}}
        target.put(at, one.checkpoint, one.metadata, one.checkpoint["channel_versions"])
        writes: dict[str, list[tuple[str, Any]]] = {}
        for task, channel, value in one.pending_writes or []:
            writes.setdefault(task, []).append((channel, value))
        for number, (task, written) in enumerate(writes.items()):
            target.put_writes(one.config, written, task, f"{number:08}")


def test_an_application_that_switches_there_and_back_loses_nothing(database_url: str) -> None:
    there, back = InMemorySaver(), InMemorySaver()
    build(there, ask=True).invoke(given(), AT)
    with Store.open(database_url) as store:
        ours = PersistSaver(store)
        moved(there, ours)
        moved(ours, back)
        before = [seen(one) for one in there.list(AT)]
        assert [seen(one) for one in ours.list(AT)] == before
        assert [seen(one) for one in back.list(AT)] == before
        for saver in (ours, back):
            assert build(saver, ask=True).invoke(Command(resume="yes"), AT)["messages"][-1].content == "done: yes"


def test_a_delta_channel_survives_pruning(database_url: str) -> None:
    def collect(state: list[Any], writes: Any) -> list[Any]:
        return [*state, *(entry for write in writes for entry in write)]

    class Log(TypedDict):
        log: Annotated[list[str], DeltaChannel(collect, snapshot_frequency=4)]

    def step(state: Any) -> dict[str, Any]:
        return {"log": [f"{len(state['log'])}"]}

    def graph(saver: BaseCheckpointSaver[str]) -> Any:
        builder = StateGraph(Log)
        builder.add_node("step", step)
        builder.add_edge(START, "step")
        return builder.compile(checkpointer=saver)

    with Store.open(database_url) as store:
        saver, reference = PersistSaver(store), InMemorySaver()
        for _ in range(7):
            result = graph(saver).invoke({"log": ["in"]}, AT)
            assert result == graph(reference).invoke({"log": ["in"]}, AT)
            saver.prune(["thread"])
            assert graph(saver).get_state(AT).values == result
        assert len(list(saver.list(AT))) < 12


def test_a_copy_of_the_database_goes_on(database_url: str, new_database: Callable[[], str], expected: dict[str, Any]) -> None:
    with Store.open(database_url) as store:
        build(PersistSaver(store), ask=True).invoke(given(), AT)
    target = new_database()
    with Store.open(database_url) as source, Store.open(target) as store:
        copy(source, store)
    with Store.open(target) as store:
        assert build(PersistSaver(store), ask=True).invoke(Command(resume="yes"), AT)["messages"][-1].content == "done: yes"


def test_a_thread_that_nobody_used_for_long_goes(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        build(PersistSaver(store)).invoke(given(), AT)
        clock.advance(seconds=31 * 86400)
        build(PersistSaver(store)).invoke(given(), {"configurable": {"thread_id": "used"}})
        report = prune(store, "checkpoints", older_than=timedelta(days=30))
        assert report.tables["checkpoint_threads"] == 1
        assert {one.config["configurable"]["thread_id"] for one in PersistSaver(store).list(None)} == {"used"}
