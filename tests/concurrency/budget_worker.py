"""What the processes of the race for a budget run: `python -m tests.concurrency.budget_worker URL NAME`."""

import json
import sys
from datetime import timedelta

from persist import Store
from tests.concurrency.workflow_worker import patiently

COST = 10
"""What a run costs, in millionths of a US dollar."""


def main(url: str, name: str) -> None:
    """Claim runs until there is none to claim, and report what each one costs -> how many there were."""
    done = 0
    with Store.open(url) as store:
        print(json.dumps("ready"), flush=True)
        sys.stdin.readline()
        runs, sample = store.workflows.runs, store.telemetry.usage.sample
        while (lease := patiently(runs.claim, name, lease=timedelta(hours=1))) is not None:
            whose = {"owner": "maria", "workflow": lease.run.workflow_name, "run_id": lease.run_id, "instance_id": name}
            patiently(sample, at=store.runtime.now(), model="large", cost_usd_micros=COST, **whose)
            patiently(runs.complete, lease)
            done += 1
    print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
