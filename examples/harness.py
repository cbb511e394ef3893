"""A harness that can be killed at any moment, and goes on where it was when it is run again.

python examples/harness.py start --crash after-plan   # plans, and dies of SIGKILL
python examples/harness.py start                      # does not plan again; waits at the gate
python examples/harness.py approve --by maria         # or reject; applies the plan

persist work examples.harness:WORKER --url harness.db   # does the same work for as long as it runs, beside who starts and answers
"""

import argparse
import os
import signal
from pathlib import Path

try:
    from persist import Store
    from persist.workflows import Worker
    from persist.workflows.schemas import WorkflowRun
except ImportError as missing:
    raise SystemExit(f"{missing}. In a clone of persist: pip install .") from None

WORLD = Path("harness-applied.txt")


def release(run: WorkflowRun) -> None:
    """The handler: called again after each crash and after the answer, from its beginning."""
    worker = Worker.current()
    with worker.phase(run, "plan") as plan:
        if plan.due:
            plan.output = f"Release {run.id}."  # here a model would think for a while
            plan.use(input_tokens=1000, output_tokens=50, cost_usd=0.01)
        crash("in-plan")
    print("plan:", plan.output if plan.due else "done already", flush=True)
    crash("after-plan")
    gates = worker.store.workflows.approvals
    if gates.wait(run.id, "review", summary=plan.output or "", lease=worker.lease(run)) is None:
        return
    with worker.phase(run, "apply") as applied:
        if applied.due:
            done = WORLD.read_text() if WORLD.exists() else ""
            WORLD.write_text(done if run.id in done else f"{done}{run.id}\n")  # safe to repeat
        crash("in-apply")
    print("apply:", "Released." if applied.due else "done already")
    crash("after-apply")


WORKER = {"handlers": {"release": release}, "name": "harness"}


def crash(moment: str) -> None:
    if os.environ.get("HARNESS_CRASH") == moment:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["start", "approve", "reject"])
    parser.add_argument("--url", default="sqlite:///harness.db", help="sqlite:///FILE or postgresql://…")
    parser.add_argument("--by", help="who answers the gate")
    parser.add_argument("--crash", choices=["in-plan", "after-plan", "in-apply", "after-apply"], default="")
    options = parser.parse_args()
    os.environ["HARNESS_CRASH"] = options.crash
    with Store.open(options.url) as store:
        store.on_run_finished(lambda run: print(run.id, run.status))
        runs, gates = store.workflows.runs, store.workflows.approvals
        if options.command == "start":
            runs.create("release", trigger_id="me", current_phase="plan", status="queued", unique_trigger=True)
        elif not gates.pending():
            raise SystemExit("Nothing waits for an answer.")
        else:
            answer = gates.resolve_and_resume if options.command == "approve" else gates.resolve_and_fail
            answer(gates.pending()[0].id, by=options.by)
        Worker(store, **WORKER).run(until_idle=True)
        if gates.pending():
            print("review: waiting; answer with approve or reject")


if __name__ == "__main__":
    main()
