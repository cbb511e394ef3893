"""A process with a Worker that kills itself: `python -m tests.concurrency.dying_worker URL NAME WORLD MOMENTS`.

MOMENTS is after how many moments of its handlers it dies; 0: never, and the process ends when nothing can be claimed.
"""

import itertools
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from persist import Store
from persist.errors import EffectUnknown
from persist.workflows import Worker
from persist.workflows.schemas import WorkflowRun


def main(url: str, name: str, world: Path, moments: int) -> None:
    passed = itertools.count(1)

    def moment() -> None:
        if next(passed) == moments:
            os.kill(os.getpid(), signal.SIGKILL)

    def build(run: WorkflowRun) -> None:
        moment()
        with worker.phase(run, "plan") as phase:
            if phase.due:
                moment()
                phase.output = f"the plan of {run.id}"
            moment()
        assert phase.output == f"the plan of {run.id}"
        moment()
        comment(run)
        moment()
        with worker.phase(run, "apply"):
            moment()

    def comment(run: WorkflowRun) -> None:
        """Write the run's id into the world, once."""
        again = False
        try:
            with worker.step(run, "comment") as step:
                post(run, due=step.due)
        except EffectUnknown:  # an earlier process died around it: look at the world
            again = True
        if again and run.id not in world.read_text(encoding="utf-8").split():
            with worker.step(run, "comment", retry=True) as step:
                post(run, due=step.due)
        elif again:
            store.workflows.effects.complete(run.id, "comment")

    def post(run: WorkflowRun, *, due: bool) -> None:
        moment()
        if due:
            with world.open("a", encoding="utf-8") as file:
                file.write(f"{run.id}\n")
        moment()

    with Store.open(url) as store:
        worker = Worker(store, {"build": build}, name=name, concurrency=2, lease=timedelta(hours=1))
        worker.run(until_idle=True)


if __name__ == "__main__":
    _, given_url, given_name, file, number = sys.argv
    main(given_url, given_name, Path(file), int(number))
