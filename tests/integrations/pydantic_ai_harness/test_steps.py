"""The step store beside the harness's own one in memory: the same histories of calls have the same results."""

import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.test import TestModel
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    InMemoryStepStore,
    RunRecord,
    StepEvent,
    StepPersistence,
    StepStore,
    ToolEffectRecord,
    continue_run,
)

from persist import Store
from persist.errors import Conflict, InvalidValue
from persist.integrations.pydantic_ai import InvalidInput, PersistStepStore, RunTaken
from tests.integrations.kits import Do

AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
Call = tuple[str, Any]


def messages(letters: str) -> list[ModelMessage]:
    return [
        ModelRequest(parts=[UserPromptPart(letter, timestamp=AT)])
        if index % 2 == 0
        else ModelResponse(parts=[TextPart(letter)], timestamp=AT)
        for index, letter in enumerate(letters)
    ]


def snapshot(letters: str, number: int, key: str | None = None, state: Any = "complete", run: str = "r0") -> ContinuableSnapshot:
    at = AT + timedelta(seconds=number)
    about: dict[str, Any] = {
        "conversation_id": "c",
        "agent_name": "\x00",
        "timestamp": at,
        "state": state,
        "idempotency_key": key,
    }
    return ContinuableSnapshot(run_id=run, step_index=number, messages=messages(letters), **about)


RUNS = st.sampled_from(["r0", "r1"])
KEYS = st.none() | st.sampled_from(["plain", "0:a", "1:a", "1:b", "2:a", "x:a", "-1:a"])
CALLS = st.lists(
    st.one_of(
        st.tuples(
            st.just("save_snapshot"),
            st.builds(
                snapshot,
                st.sampled_from(["", "a", "ab", "abc", "abcd", "abx", "xb", "abab"]),
                st.integers(0, 9),
                KEYS,
                st.sampled_from(["complete", "interrupted"]),
                RUNS,
            ),
        ),
        st.tuples(
            st.just("append_event"),
            st.builds(
                StepEvent,
                run_id=RUNS,
                kind=st.just("tool_call_started"),
                step_index=st.integers(0, 9),
                timestamp=st.just(AT),
                idempotency_key=KEYS,
                error=st.none() | st.just("\x00\ud83d"),
            ),
        ),
        st.tuples(
            st.just("record_tool_effect"),
            st.builds(
                ToolEffectRecord,
                run_id=RUNS,
                tool_call_id=st.sampled_from(["a", "b"]),
                tool_name=st.just("tool"),
                status=st.sampled_from(["started", "completed", "failed"]),
                started_at=st.just(AT),
                effect_summary=st.none() | st.just("done"),
            ),
        ),
    ),
    max_size=14,
)


async def seen(store: Any) -> list[Any]:
    """All that a store tells, of both runs."""
    told = []
    for run in ("r0", "r1"):
        told += [await store.list_events(run_id=run), await store.list_unresolved_tool_effects(run_id=run)]
        for interrupted in (False, True):
            told.append(await store.latest_snapshot(run_id=run, include_interrupted=interrupted))
            told.append(await store.list_snapshots(run_id=run, include_interrupted=interrupted))
        told += [await store.get_tool_effect(run_id=run, tool_call_id=call) for call in "ab"]
    return told


@pytest.mark.parametrize("face", ["sync"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=CALLS, keep=st.sampled_from([None, 1, 2]))
def test_it_does_what_the_store_in_memory_does(store: Store, do: Do, calls: list[Call], keep: int | None) -> None:
    async def both() -> None:
        for run in ("r0", "r1"):
            store.histories.runs.delete(run)
        ours, theirs = PersistStepStore(store, max_snapshots_per_run=keep), InMemoryStepStore(max_snapshots_per_run=keep)
        for name, value in calls:
            await getattr(ours, name)(value)
            await getattr(theirs, name)(value)
        assert await seen(ours) == await seen(theirs)

    do(both())
    assert store.histories.records.latest() == []


def test_it_is_a_step_store(steps: PersistStepStore) -> None:
    assert isinstance(steps, StepStore)


def test_a_run_is_registered_once(steps: PersistStepStore, do: Do) -> None:
    run = RunRecord(run_id="r", conversation_id="c", parent_run_id="p", agent_name="\x00", metadata={"a": "b"}, started_at=AT)
    do(steps.register_run(run))
    do(steps.register_run(run))
    assert do(steps.get_run(run_id="r")) == run
    with pytest.raises(RunTaken) as caught:
        do(steps.register_run(replace(run, registration_id="other")))
    assert isinstance(caught.value, Conflict)
    assert isinstance(caught.value, ValueError)
    assert do(steps.get_run(run_id="gone")) is None


async def test_a_run_of_the_harness_can_be_continued(steps: PersistStepStore) -> None:
    async def tool(x: int) -> str:
        return f"{x}"

    agent = Agent(TestModel(), tools=[tool], capabilities=[StepPersistence(store=steps)])
    result = await agent.run("go")
    (registered,) = await steps.list_runs()
    kinds = [event.kind for event in await steps.list_events(run_id=registered.run_id)]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_completed"
    assert await steps.list_unresolved_tool_effects(run_id=registered.run_id) == []
    history = await continue_run(steps, run_id=registered.run_id)
    assert history == result.all_messages()[: len(history)]
    again = await agent.run("more", message_history=history)
    assert len(await steps.list_runs()) == 2
    assert len(again.all_messages()) > len(history)


def test_a_run_of_many_snapshots_takes_bytes_for_each_message_once(steps: PersistStepStore, do: Do, database_url: str) -> None:
    said = "x" * 500

    async def run() -> None:
        for number in range(1, 201):
            grown = [ModelRequest(parts=[UserPromptPart(f"{said}{n}", timestamp=AT)]) for n in range(number)]
            await steps.save_snapshot(
                ContinuableSnapshot(run_id="r", step_index=number, messages=grown, timestamp=AT, idempotency_key=f"{number}:k")
            )
        latest = await steps.latest_snapshot(run_id="r")
        assert latest is not None
        assert len(latest.messages) == 200

    do(run())
    with Store.open(database_url) as look, look.read() as tx:
        found = tx.histories.snapshots.list("r")
        assert len({entry.id for one in found for entry in one.entries}) == 200


@pytest.mark.parametrize("value", ["\x00 \ud83d", {"z": 1, "a": b"\xff"}, {"n": float("inf")}, 2**64 - 1], ids=str)
def test_values_come_back_equal(steps: PersistStepStore, do: Do, value: Any) -> None:
    saved: list[ModelMessage] = [ModelRequest(parts=[ToolReturnPart("tool", value, tool_call_id="c", timestamp=AT)])]
    given = ContinuableSnapshot(run_id="r", step_index=0, messages=saved, timestamp=AT)
    do(steps.save_snapshot(given))
    assert do(steps.latest_snapshot(run_id="r")) == given


def test_what_cannot_be_stored_is_refused(steps: PersistStepStore, do: Do) -> None:
    wrong: list[Callable[[], Awaitable[None]]] = [
        lambda: steps.append_event(StepEvent(run_id="\x00", kind="run_started", step_index=0)),
        lambda: steps.append_event(StepEvent(run_id="r", kind="run_started", step_index=2**63)),
        lambda: steps.append_event(StepEvent(run_id="r", kind="run_started", step_index=0, timestamp=datetime(2026, 1, 1))),
        lambda: steps.save_snapshot(
            ContinuableSnapshot(
                run_id="r", step_index=0, messages=[ModelRequest(parts=[ToolReturnPart("t", 2**64, tool_call_id="c")])]
            )
        ),
    ]
    for call in wrong:
        with pytest.raises(InvalidInput) as caught:
            do(call())
        assert isinstance(caught.value, InvalidValue)
        assert isinstance(caught.value, UserError)
    for keep in (0, -1, 1.5, "2"):
        with pytest.raises(ValueError, match="max_snapshots_per_run"):
            PersistStepStore(steps._store, max_snapshots_per_run=keep)  # type: ignore[arg-type]  # not what belongs there
    assert do(steps.list_events(run_id="r")) == []


def test_a_name_whose_framework_is_missing_says_what_to_install() -> None:
    """The newest harness comes with a release of Pydantic AI that has no conversation stores."""
    program = (
        "import sys; sys.modules['pydantic_ai.conversation_store'] = None\n"
        "from persist.integrations.pydantic_ai import PersistStepStore\n"
        "try:\n    from persist.integrations.pydantic_ai import PersistConversationStore\n"
        "except ImportError as error:\n    print(error)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "agent-persist[pydantic-ai]" in told
