"""examples/harness.py as real processes, killed in every phase and run again, on both databases."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from persist import Store
from persist.workflows.schemas import Approval, Execution, WorkflowRun
from tests.markdown import ROOT
from tests.subprocesses import Worker

pytestmark = pytest.mark.one_database

Harness = Callable[..., subprocess.CompletedProcess[str]]
PHASES = ("plan", "review", "apply")


@pytest.fixture
def harness(database_url: str, tmp_path: Path) -> Harness:
    """`harness("start", …)` runs it in a folder of its own, until it ends or kills itself."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    script = [sys.executable, str(ROOT / "examples" / "harness.py")]

    def run(command: str, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*script, command, "--url", database_url, *args],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.fixture
def forked(database_url: str, tmp_path: Path) -> Harness:
    """`forked("start", …)` does as `harness` does, for many starts: forked from a process that has loaded persist."""

    def run(command: str, *args: str) -> subprocess.CompletedProcess[str]:
        with Worker("examples.harness", command, "--url", database_url, *args, cwd=tmp_path) as worker:
            said, _ = worker.communicate(timeout=60)
        return subprocess.CompletedProcess(worker.args, worker.wait(), said, "")

    return run


def killed(result: subprocess.CompletedProcess[str]) -> bool:
    assert result.returncode in (0, -signal.SIGKILL), result.stdout + result.stderr
    return result.returncode == -signal.SIGKILL


def stored(url: str) -> tuple[WorkflowRun, list[Execution], list[Approval]]:
    """The one run there is, with what belongs to it."""
    with Store.open(url) as store, store.read() as tx:
        (only,) = tx.workflows.runs.list().items
        run = tx.workflows.runs.get(only.id)
        return run, tx.workflows.executions.for_run(run.id), tx.workflows.approvals.list_for_run(run.id)


def assert_each_phase_happened_once(url: str, folder: Path) -> None:
    run, executions, approvals = stored(url)
    assert run.status == "succeeded"
    assert [item["phase"] for item in run.phase_history] == list(PHASES)
    done = [execution for execution in executions if execution.success]
    assert [execution.skill for execution in done] == ["release:plan", "release:apply"]
    recorded = [item["execution"] for item in run.phase_history if "execution" in item]
    assert recorded == [execution.id for execution in done]
    assert all(execution.finished_at is not None for execution in executions)
    assert [(approval.gate, approval.status, approval.responded_by) for approval in approvals] == [
        ("review", "approved", "maria")
    ]
    assert (folder / "harness-applied.txt").read_text(encoding="utf-8") == f"{run.id}\n"


def test_an_undisturbed_run(harness: Harness, forked: Harness, database_url: str, tmp_path: Path) -> None:
    assert "review: waiting" in harness("start").stdout
    assert not (tmp_path / "harness-applied.txt").exists()
    again = forked("start")
    assert (again.returncode, "plan" in again.stdout) == (0, False)
    assert "succeeded" in harness("approve", "--by", "maria").stdout
    assert_each_phase_happened_once(database_url, tmp_path)
    assert stored(database_url)[0].restart_count == 0
    assert forked("approve").returncode == 1


def test_killed_everywhere_and_resumed(forked: Harness, database_url: str, tmp_path: Path) -> None:
    for moment, phase in (("in", "plan"), ("after", "plan")):
        assert killed(forked("start", "--crash", f"{moment}-{phase}"))
    assert "review: waiting" in forked("start").stdout
    assert stored(database_url)[0].phase_history[-1]["phase"] == "review"
    assert killed(forked("approve", "--by", "maria", "--crash", "in-apply"))
    assert killed(forked("start", "--crash", "after-apply"))
    assert "plan: done already\napply: done already\n" in forked("start").stdout
    assert_each_phase_happened_once(database_url, tmp_path)
    skills = [execution.skill for execution in stored(database_url)[1]]
    assert (skills.count("release:plan"), skills.count("release:apply")) == (2, 2)


def test_a_rejected_plan_is_never_applied(forked: Harness, database_url: str, tmp_path: Path) -> None:
    forked("start")
    assert "failed" in forked("reject", "--by", "maria").stdout
    run, executions, _ = stored(database_url)
    assert (run.status, run.context) == ("failed", {"error": "Rejected: no reason given"})
    assert [execution.skill for execution in executions] == ["release:plan"]
    assert not (tmp_path / "harness-applied.txt").exists()


def test_a_worker_from_the_command_line_does_the_same_work(forked: Harness, database_url: str, tmp_path: Path) -> None:
    killed(forked("start", "--crash", "after-plan"))
    done = []
    for _ in range(2):
        args = ("work", "examples.harness:WORKER", "--url", database_url, "--until-idle")
        with Worker("tests.cli.worker", *args, cwd=tmp_path) as worker:
            done.append(worker.communicate(timeout=60)[0])
        with Store.open(database_url) as store:
            for gate in store.workflows.approvals.pending():
                store.workflows.approvals.resolve_and_resume(gate.id, by="maria")
    assert "plan: done already\n" in done[0]
    assert "apply: Released.\nEnded: 1 succeeded.\n" in done[1]
    assert_each_phase_happened_once(database_url, tmp_path)
