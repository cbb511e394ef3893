"""What the stores refuse, hide and cost: wrong kinds, secrets, round trips; trio; races; and the example."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from pydantic_ai.exceptions import UserError
from pydantic_ai_harness.step_persistence import RunRecord

from persist import AsyncStore, Store
from persist.cli import main
from persist.errors import StoreCorrupt, UnsupportedEngine
from persist.integrations.pydantic_ai import InvalidInput, PersistStepStore
from persist.maintenance import doctor
from tests.integrations.kits import Do
from tests.integrations.pydantic_ai_harness.scenes import AT, effect, event, grown
from tests.integrations.telling import SECRET, require_silence
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, require
from tests.subprocesses import ROOT


def test_arguments_of_a_step_store(store: Store | AsyncStore, database_url: str, do: Do) -> None:
    steps = PersistStepStore(store)
    do(steps.save_snapshot(grown("r", 1)))
    valid: dict[str, dict[str, Any]] = {
        "register_run": {"record": RunRecord(run_id="q", started_at=AT)},
        "get_run": {"run_id": "r"},
        "list_runs": {"parent_run_id": "p", "conversation_id": "c"},
        "append_event": {"event": event("r", 1)},
        "list_events": {"run_id": "r"},
        "save_snapshot": {"snapshot": grown("r", 2)},
        "latest_snapshot": {"run_id": "r", "include_interrupted": True},
        "list_snapshots": {"run_id": "r", "include_interrupted": True},
        "record_tool_effect": {"record": effect("r", 1)},
        "get_tool_effect": {"run_id": "r", "tool_call_id": "t"},
        "list_unresolved_tool_effects": {"run_id": "r"},
    }
    require_typed_errors(lambda: steps, valid, do=do, database_url=database_url, error=UserError)


@pytest.mark.parametrize("wrong", WRONG, ids=KINDS)
def test_what_is_no_store(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="expected a Store or an AsyncStore"):
        PersistStepStore(wrong)


ROWS = (
    Row("register_run", 2),
    Row("get_run", 1),
    Row("list_runs", 1),
    Row("append_event", 2),
    Row("list_events", 1),
    Row("save_snapshot", 2),
    Row("latest_snapshot", 2),
    Row("record_tool_effect", 2),
    Row("get_tool_effect", 1),
    Row("list_unresolved_tool_effects", 1),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_method_keeps_its_bound(row: Row, meter: Meter, do: Do) -> None:
    with Store.open(meter.url) as store:
        steps, numbers = PersistStepStore(store), count(3)
        methods: dict[str, Callable[[], object]] = {
            "register_run": lambda: do(steps.register_run(RunRecord(run_id=f"r{next(numbers)}"))),
            "get_run": lambda: do(steps.get_run(run_id="r")),
            "list_runs": lambda: do(steps.list_runs()),
            "append_event": lambda: do(steps.append_event(event("r", next(numbers)))),
            "list_events": lambda: do(steps.list_events(run_id="r")),
            "save_snapshot": lambda: do(steps.save_snapshot(grown("r", next(numbers)))),
            "latest_snapshot": lambda: do(steps.latest_snapshot(run_id="r")),
            "record_tool_effect": lambda: do(steps.record_tool_effect(effect("r", next(numbers)))),
            "get_tool_effect": lambda: do(steps.get_tool_effect(run_id="r", tool_call_id="call1")),
            "list_unresolved_tool_effects": lambda: do(steps.list_unresolved_tool_effects(run_id="r")),
        }
        for number in (1, 2):
            do(steps.save_snapshot(grown("r", number)))
            do(steps.append_event(event("r", number)))
            do(steps.record_tool_effect(effect("r", number)))
        require(complaint(row.name, row.bound, meter.flights(methods[row.name], bound=row.bound)))


# What is stored stands in no error of the step store, nor in those that one comes from.


def test_a_snapshot_that_cannot_be_read_is_not_told(steps: PersistStepStore, do: Do, execute: Callable[[str], int]) -> None:
    do(steps.save_snapshot(grown("r", 2)))
    bad = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": {"a": SECRET}, "timestamp": SECRET}]}
    assert execute(f"UPDATE history_entries SET message_json = '{json.dumps(bad)}'")
    with pytest.raises(StoreCorrupt, match="none of Pydantic AI") as caught:
        do(steps.latest_snapshot(run_id="r"))
    require_silence(caught)


# The example survives its kill, and the command line shows what it left.


def run(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / "examples" / "pydantic_ai_harness_app.py"), "--url", url, *options]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.long
def test_the_example_survives_its_kill(database_url: str) -> None:
    killed = run(database_url, "--crash-in", "Faro")
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "booking Lisbon\nbooking Porto\n"), killed.stderr
    resumed = run(database_url)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert resumed.stdout == "going on after 5 messages\nbooking Faro\nagent: All 3 are booked.\n"
    listed = CliRunner().invoke(main, ["histories", "runs", "--url", database_url, "-q"])
    first, *_ = listed.output.split()
    shown = CliRunner().invoke(main, ["show", first, "--url", database_url])
    assert (shown.exit_code, "run_completed" in shown.output) == (0, True), shown.output


# On trio a Store is used from threads, and an AsyncStore is refused.


def test_on_trio(store: Store | AsyncStore) -> None:
    steps = PersistStepStore(store)

    async def story() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(steps.append_event, event("r", number))
        assert sorted(one.step_index for one in await steps.list_events(run_id="r")) == [0, 1, 2, 3, 4]
        await steps.save_snapshot(grown("r", 2))
        latest = await steps.latest_snapshot(run_id="r")
        assert latest is not None
        assert len(latest.messages) == 2
        await steps.record_tool_effect(effect("r", 1))
        assert len(await steps.list_unresolved_tool_effects(run_id="r")) == 1

    if isinstance(store, Store):
        trio.run(story)
        return
    with pytest.raises(UnsupportedEngine, match="elsewhere give the adapter a Store"):
        trio.run(steps.append_event, event("r", 1))


# Processes that write one run, processes that are killed in the middle, and calls that are cancelled.


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
