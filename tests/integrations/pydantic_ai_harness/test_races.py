"""Processes that write one run, processes that are killed in the middle, and calls that are cancelled."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from persist import Store
from persist.integrations.pydantic_ai import PersistStepStore
from persist.maintenance import doctor
from tests.integrations.pydantic_ai_harness.conftest import Do
from tests.integrations.pydantic_ai_harness.scenes import effect, event, grown
from tests.subprocesses import ROOT

WORKER = [sys.executable, "-m", "tests.integrations.pydantic_ai_harness.worker"]


async def told(steps: PersistStepStore, run: str) -> tuple[list[int], Any, list[str]]:
    """The steps of a run's events, its latest snapshot, and its calls without an end."""
    numbers = [one.step_index for one in await steps.list_events(run_id=run)]
    unresolved = [one.tool_call_id for one in await steps.list_unresolved_tool_effects(run_id=run)]
    return numbers, await steps.latest_snapshot(run_id=run), unresolved


@pytest.mark.long
def test_processes_repeat_one_run_without_a_trace(database_url: str) -> None:
    """Two processes that go through the same steps at once, as after a job was started twice, leave what one leaves."""
    Store.open(database_url).close()
    started = [subprocess.Popen([*WORKER, database_url, "r", "1", "9"], cwd=ROOT, stdout=subprocess.DEVNULL) for _ in "ab"]
    assert [process.wait(120) for process in started] == [0, 0]
    with Store.open(database_url) as store:
        assert asyncio.run(told(PersistStepStore(store), "r")) == ([*range(1, 9)], grown("r", 8), [])
        assert [len(one.entries) for one in store.histories.snapshots.list("r")] == [6, 7, 8]
        assert doctor(store) == []


@pytest.mark.long
def test_a_killed_process_leaves_whole_calls(database_url: str) -> None:
    Store.open(database_url).close()
    with subprocess.Popen([*WORKER, database_url, "r", "1", "500"], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(4):
            assert process.stdout.readline()
        process.kill()
    with Store.open(database_url) as store:
        steps = PersistStepStore(store)
        numbers, latest, unresolved = asyncio.run(told(steps, "r"))
        reached = len(numbers)
        assert numbers == [*range(1, reached + 1)]
        assert reached >= 4
        assert latest in (grown("r", reached), grown("r", reached - 1))
        assert unresolved in ([], [f"call{reached}"])
        assert doctor(store) == []
        asyncio.run(steps.save_snapshot(grown("r", reached + 1)))  # the run goes on
        assert asyncio.run(steps.latest_snapshot(run_id="r")) == grown("r", reached + 1)


def test_a_cancelled_call_is_done_wholly_or_not_at_all(steps: PersistStepStore, do: Do) -> None:
    async def cancelled() -> int:
        ended = 0
        for number in range(24):
            run = f"r{number}"
            call: Any = [
                lambda run=run: steps.save_snapshot(grown(run, 9)),
                lambda run=run: steps.append_event(event(run, 9)),
                lambda run=run: steps.record_tool_effect(effect(run, 9)),
            ][number % 3]
            running = asyncio.ensure_future(call())
            for _ in range(number % 5):
                await asyncio.sleep(0)
            await asyncio.sleep(0.0004 * (number % 4))
            running.cancel()
            running.cancel()
            ended += isinstance((await asyncio.gather(running, return_exceptions=True))[0], asyncio.CancelledError)
            numbers, latest, unresolved = found = await told(steps, run)
            whole = {0: ([], grown(run, 9), []), 1: ([9], None, []), 2: ([], None, ["call9"])}[number % 3]
            assert (numbers, latest, unresolved) in (([], None, []), whole)
            assert await told(steps, run) == found  # nothing happens behind the caller's back
        return ended

    assert do(cancelled()) > 0
