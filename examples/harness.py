"""A harness that can be killed at any moment, and goes on where it was when it is run again.

    python examples/harness.py start --crash-after plan   # plans, and dies of SIGKILL
    python examples/harness.py start                      # does not plan again; waits at the gate
    python examples/harness.py approve --by maria         # or reject; applies the plan

A phase is stored with the fact that it is done. What it does to the world outside happens twice if the process dies in between
(`--crash-in PHASE`), so `apply` looks whether it is done already.
"""

import argparse
import os
import signal
from collections.abc import Callable
from pathlib import Path

from persist import Store
from persist.workflows import Worker
from persist.workflows.schemas import WorkflowRun

TRIGGER, WORLD = "cli/harness", Path("harness-applied.txt")


def release(run: WorkflowRun) -> None:
    """The handler: called again after each crash and each answer, from its beginning."""
    text = phase(run, "plan", lambda: f"Release {run.id}.")  # here a model would think for a while
    with store.begin() as tx:
        answer = tx.workflows.approvals.wait(run.id, "review", summary=text, lease=worker.lease(run))
        crash("in", "review")
    crash("after", "review")
    if answer is not None:
        print("review:", answer.status)
        phase(run, "apply", lambda: apply(run))


def phase(run: WorkflowRun, name: str, work: Callable[[], str]) -> str:
    with worker.phase(run, name) as block:
        if block.due:
            block.output = work()
            block.use(input_tokens=1000, output_tokens=50, cost_usd=0.01)
        crash("in", name)
    crash("after", name)
    print(f"{name}:", block.output if block.due else "done already")
    return block.output or ""


def apply(run: WorkflowRun) -> str:
    if not WORLD.exists() or run.id not in WORLD.read_text().splitlines():
        with WORLD.open("a") as world:
            world.write(f"{run.id}\n")
    return "Released."


def crash(moment: str, name: str) -> None:
    if (options.crash_in if moment == "in" else options.crash_after) == name:
        os.kill(os.getpid(), signal.SIGKILL)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("command", choices=["start", "approve", "reject"])
parser.add_argument("--url", default="sqlite:///harness.db", help="sqlite:///FILE or postgresql://…")
parser.add_argument("--by", help="who answers the gate")
for moment in ("--crash-in", "--crash-after"):
    parser.add_argument(moment, choices=["plan", "review", "apply"])
options = parser.parse_args()

with Store.open(options.url) as store:
    store.on_run_finished(lambda run: print(run.id, run.status))
    runs, gates = store.workflows.runs, store.workflows.approvals
    waiting = gates.pending(trigger_id=TRIGGER)
    if options.command == "start":
        runs.create("release", trigger_id=TRIGGER, current_phase="plan", status="queued", unique_trigger=True)
    elif not waiting:
        raise SystemExit("Nothing waits for an answer.")
    else:
        (gates.resolve_and_resume if options.command == "approve" else gates.resolve_and_fail)(waiting[0].id, by=options.by)
    worker = Worker(store, {"release": release}, name="harness")
    worker.run(until_idle=True)
    if gates.pending(trigger_id=TRIGGER):
        print("review: waiting; answer with approve or reject")
