"""What the processes of the tests of workflows run: `python -m tests.concurrency.workflow_worker COMMAND URL NAME SECONDS`.

Each says on stdout what it did, one JSON value a line, and waits on stdin for a line where it says so.
"""

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from persist import Store
from persist.errors import LeaseLost, StoreBusy
from persist.workflows.schemas import Lease


def say(value: object) -> None:
    print(json.dumps(value), flush=True)


def claim(store: Store, worker: str, seconds: float) -> Lease | None:
    with store.begin() as tx:
        return tx.workflows.runs.claim(worker, lease=timedelta(seconds=seconds))


def stall(store: Store, worker: str, seconds: float) -> None:
    """Claim a run and begin a phase -> [run, execution]. At the word, try to write -> what was refused."""
    lease = claim(store, worker, seconds)
    assert lease is not None
    with store.begin() as tx:
        execution = tx.workflows.executions.start(
            trigger_type="test", trigger_id=lease.run.trigger_id, skill="build:work", workflow_run_id=lease.run_id, lease=lease
        )
    say([lease.run_id, execution.id])
    sys.stdin.readline()
    refused = []
    for verb, args in [("append_phase", ("late",)), ("merge_scratch", ({"late": True},)), ("finish", ("succeeded",))]:
        try:
            with store.begin() as tx:
                getattr(tx.workflows.runs, verb)(lease.run_id, *args, lease=lease)
        except LeaseLost:
            refused.append(verb)
    say(refused)


def hold(store: Store, worker: str, seconds: float) -> None:
    """Claim a run in a transaction that never ends -> the run."""
    with store.begin() as tx:
        lease = tx.workflows.runs.claim(worker, lease=timedelta(seconds=seconds))
        assert lease is not None
        say(lease.run_id)
        time.sleep(60)


def patiently(verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call until nobody has held the write lock for too long, as a worker does."""
    while True:
        with suppress(StoreBusy):
            return verb(*args, **options)


def under_limits(store: Store, worker: str, seconds: float) -> None:
    """At the word, claim several runs at once and finish them, until every run has ended -> [run, claimed, finished] of each.

    The instants are those that the store had before the claim was committed, and after the end was asked for: while a run was
    running for certain.
    """
    say("ready")
    sys.stdin.readline()
    number = int(worker.removeprefix("w"))
    done = []
    runs = store.workflows.runs
    while runs.count(status=["queued", "running"]):
        leases = patiently(runs.claim, worker, lease=timedelta(seconds=seconds), limit=1 + number % 4)
        claimed = time.monotonic()
        for lease in leases:
            ended = time.monotonic()
            patiently(runs.complete, lease)
            done.append([lease.run_id, claimed, ended])
        if not leases:
            time.sleep(0.05)
    say(done)


COMMANDS = {"stall": stall, "hold": hold, "under_limits": under_limits}

if __name__ == "__main__":
    _, command, url, name, lasts = sys.argv
    with Store.open(url) as opened:
        COMMANDS[command](opened, name, float(lasts))
