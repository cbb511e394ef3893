"""A harness that can be killed at any moment, and goes on where it was when it is run again.

    python examples/harness.py start --crash-after plan   # plans, and dies of SIGKILL
    python examples/harness.py start                      # does not plan again; waits at the gate
    python examples/harness.py approve --by maria         # or reject; applies the plan
    persist runs ls --url sqlite:///harness.db            # what became of it

Three phases: plan, review (a gate), apply. What a phase did is stored in one transaction with the fact that it is done.
What it does to the world outside can happen twice if the process dies in between, so it must be harmless to repeat:
`apply` looks whether its line is in harness-applied.txt already. `--crash-in PHASE` dies in just that moment.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from persist import Store
from persist.workflows.schemas import RunStatus, WorkflowRun

WORKFLOW, TRIGGER, GATE = "release", "cli/harness", "review"
WORLD = Path("harness-applied.txt")


def plan(run: WorkflowRun) -> str:
    return f"Release {run.id}."  # here a model would think for a while


def apply(run: WorkflowRun) -> str:
    done = WORLD.read_text(encoding="utf-8").splitlines() if WORLD.exists() else []
    if run.id not in done:
        with WORLD.open("a", encoding="utf-8") as world:
            world.write(f"{run.id}\n")
    return "Released."


WORK: dict[str, Callable[[WorkflowRun], str]] = {"plan": plan, "apply": apply}
PHASES = ("plan", GATE, "apply")


def drive(store: Store, run: WorkflowRun, crash: Callable[[str, str], None]) -> None:
    """Every phase that is not done yet, up to the end or to a gate that nobody has answered."""
    for phase in PHASES:
        if phase == GATE:
            with store.begin() as tx:
                gates = tx.workflows.approvals.list_for_run(run.id)
                if not gates:
                    text = tx.workflows.executions.phase_output(f"{WORKFLOW}:plan", TRIGGER, workflow_run_id=run.id)
                    tx.workflows.approvals.pause_for_approval(run.id, gate=GATE, summary=text or "", marker=(GATE, "asked"))
                    crash("in", phase)
            crash("after", phase)
            if not gates:
                print("review: waiting; answer with approve or reject")
                return
            print("review: approved")
            continue
        skill = f"{WORKFLOW}:{phase}"
        with store.read() as tx:
            if tx.workflows.executions.should_run(skill, TRIGGER, workflow_run_id=run.id) == "done":
                print(f"{phase}: done already")
                continue
        with store.begin() as tx:
            running = tx.workflows.executions.start(trigger_type="cli", trigger_id=TRIGGER, skill=skill, workflow_run_id=run.id)
        output = WORK[phase](run)  # outside of any transaction: it may take hours
        crash("in", phase)
        with store.begin() as tx:  # all of this, or nothing
            tx.workflows.executions.set_output(running.id, output)
            tx.workflows.executions.finish(running.id, success=True, input_tokens=1000, output_tokens=50, cost_usd=0.01)
            tx.workflows.runs.append_phase(run.id, phase, {"execution": running.id})
        crash("after", phase)
        print(f"{phase}: {output}")
    with store.begin() as tx:
        tx.workflows.runs.finish(run.id, "succeeded")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("command", choices=["start", "approve", "reject"])
    options.add_argument("--url", default="sqlite:///harness.db", help="sqlite:///FILE or postgresql://…")
    options.add_argument("--by", help="who answers the gate")
    options.add_argument("--crash-in", choices=PHASES, help="die when the work is done, but not written down")
    options.add_argument("--crash-after", choices=PHASES, help="die when it is written down")
    given = options.parse_args()

    def crash(moment: str, phase: str) -> None:
        if (given.crash_in if moment == "in" else given.crash_after) == phase:
            os.kill(os.getpid(), signal.SIGKILL)

    with Store.open(given.url) as store:
        store.on_run_finished(lambda run: print(f"{run.id} {run.status}"))
        with store.begin() as tx:
            tx.workflows.runs.recover_interrupted()  # the executions of a process that died will not finish any more
            run = tx.workflows.runs.get_by_trigger(TRIGGER)
            waiting = [] if run is None else tx.workflows.approvals.pending(workflow_run_id=run.id)
            if given.command == "start" and run is None:
                run = tx.workflows.runs.create(WORKFLOW, trigger_id=TRIGGER, current_phase="plan", max_restarts=10)
            elif given.command != "start" and not waiting:
                print("Nothing waits for an answer.")
                return 1
            elif given.command == "approve":
                run = tx.workflows.approvals.resolve_and_resume(waiting[0].id, by=given.by)
            elif given.command == "reject":
                run = tx.workflows.approvals.resolve_and_fail(waiting[0].id, by=given.by)
        assert run is not None
        if run.status == RunStatus.PAUSED:
            print("review: waiting; answer with approve or reject")
        elif run.status == RunStatus.RUNNING:
            drive(store, run, crash)
    return 0


if __name__ == "__main__":
    sys.exit(main())
