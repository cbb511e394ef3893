"""A process with a Worker of families that kills itself: `python -m tests.concurrency.dying_family URL NAME WORLD MOMENTS`.

MOMENTS is after how many moments of its handlers it dies; 0: never, and the process ends when nothing can be claimed.
"""

import itertools
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from persist import Store
from persist.workflows import Worker
from persist.workflows.schemas import WorkflowRun


def main(url: str, name: str, world: Path, moments: int) -> None:
    passed = itertools.count(1)

    def moment() -> None:
        if next(passed) == moments:
            os.kill(os.getpid(), signal.SIGKILL)

    def parent(run: WorkflowRun) -> None:
        moment()
        with worker.phase(run, "plan"):
            moment()
        for number in range(3):
            runs.create(
                "child",
                trigger_id=run.id,
                current_phase="start",
                status="queued",
                parent_run_id=run.id,
                idempotency_key=f"{run.id}/{number}",
                max_restarts=1000,
            )
            moment()
        ended = runs.join(worker.lease(run))
        moment()
        if ended is None:
            return
        with worker.phase(run, "gather") as phase:
            moment()
            if phase.due:
                runs.merge_scratch(run.id, {"ended": ended.by_status["succeeded"]}, lease=worker.lease(run))
                if run.id not in world.read_text(encoding="utf-8").split():
                    with world.open("a", encoding="utf-8") as file:
                        file.write(f"{run.id}\n")
            moment()

    def child(run: WorkflowRun) -> None:
        moment()
        with store.begin() as tx:
            tx.workflows.runs.finish(run.id, "succeeded", lease=worker.lease(run))
            moment()
        moment()

    with Store.open(url) as store:
        runs = store.workflows.runs
        worker = Worker(store, {"parent": parent, "child": child}, name=name, concurrency=2, lease=timedelta(hours=1))
        worker.run(until_idle=True)


if __name__ == "__main__":
    _, given_url, given_name, file, number = sys.argv
    main(given_url, given_name, Path(file), int(number))
