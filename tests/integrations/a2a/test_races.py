"""Processes that end one task in two ways, and processes that are killed while a task grows."""

import asyncio
import signal
import subprocess
import sys

import pytest
from a2a.types.a2a_pb2 import TaskState
from click.testing import CliRunner

from persist import Store
from persist.cli import main
from persist.integrations.a2a import PersistPushNotificationConfigStore, PersistTaskStore
from persist.maintenance import doctor
from persist.schema.migrate import upgrade
from tests.integrations.a2a.scenes import of, task
from tests.subprocesses import ROOT

pytestmark = pytest.mark.long
WORKER = [sys.executable, "-m", "tests.integrations.a2a.worker"]
ENDS = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED")


def test_of_two_processes_one_ends_a_task(database_url: str) -> None:
    """Each task ends once, as the process says that ended it, and stays so; the other process is refused."""
    Store.open(database_url).close()
    lines = [[*WORKER, "work", database_url, name, end] for name, end in zip("ab", ENDS, strict=True)]
    started = [subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True) for line in lines]
    told = [process.communicate(timeout=240)[0].splitlines() for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert [len(one) for one in told] == [12, 12]
    with Store.open(database_url) as store:
        tasks = PersistTaskStore(store)
        for number, (mine, other) in enumerate(zip(*told, strict=True)):
            (end,) = {line.split()[1] for line in (mine, other)} - {"ended"}
            found = asyncio.run(tasks.get(f"t{number}", of("ann")))
            assert found == task(f"t{number}", state=TaskState.Value(end), parts=3)
        assert doctor(store) == []


def test_a_killed_process_leaves_whole_saves(database_url: str) -> None:
    Store.open(database_url).close()
    with subprocess.Popen([*WORKER, "forever", database_url, "a", ""], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(5):
            assert process.stdout.readline()
        process.kill()
    with Store.open(database_url) as store:
        tasks, hooks = PersistTaskStore(store), PersistPushNotificationConfigStore(store)
        found = asyncio.run(tasks.get("t", of("ann")))
        assert found is not None
        reached = int(found.metadata["parts"])
        assert reached >= 5
        assert found.history[0].parts[0].text == f"after {reached}"
        parts = [part.text for part in found.artifacts[0].parts]
        assert parts[1:] == [f"part {number}" for number in range(1, reached + 1)]
        assert sorted(one.id for one in asyncio.run(hooks.get_info("t", of("ann")))) == ["0", "1", "2"]
        assert doctor(store) == []
        found.artifacts[0].parts.add().text = "after the kill"
        asyncio.run(tasks.save(found, of("ann")))
        assert asyncio.run(tasks.get("t", of("ann"))) == found


# The example survives its kill, and the command line shows what it left.


def run(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / "examples" / "a2a_app.py"), "--url", url, *options]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def test_the_example_survives_its_kill(database_url: str) -> None:
    upgrade(database_url)
    killed = run(database_url, "--crash-after", "3")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert killed.stdout.split("\n")[:-1] == [f"writing chapter {number}" for number in (1, 2, 3)]
    resumed = run(database_url)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert resumed.stdout.split("\n")[:-1] == ["writing chapter 4", "writing chapter 5", "The book has 5 chapters."]
    id = CliRunner().invoke(main, ["ls", "agent_tasks", "--url", database_url, "-q"]).output.strip()
    shown = CliRunner().invoke(main, ["show", id, "--url", database_url])
    assert (shown.exit_code, "TASK_STATE_COMPLETED" in shown.output) == (0, True), shown.output
