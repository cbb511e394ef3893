"""What the processes of the tests of telemetry run: `python -m tests.concurrency.telemetry_worker COMMAND URL NAME`."""

import json
import sys
from datetime import UTC, datetime, timedelta

from persist import Store
from persist.errors import LeaseLost

START = datetime(2026, 1, 1, tzinfo=UTC)
STATUSES = 60


def crowd(store: Store, name: str) -> None:
    """Claim as often as the cap allows -> the tasks."""
    tries = [store.transact(lambda tx: tx.telemetry.tasks.claim(name, max_parallel=3, workspace_id="ws")) for _ in range(5)]
    print(json.dumps([task.id for task in tries if task is not None]), flush=True)


def lapse(store: Store, name: str) -> None:
    """Work until every task is completed, with leases of which half lapse at once -> [claims, ends], each of (task, token).

    A claim that lapses is one of an instance that stalls: it tries to end its task all the same.
    """
    claims: list[tuple[str, int]] = []
    ends: list[tuple[str, int]] = []
    while True:
        lease = timedelta(milliseconds=1) if len(claims) % 2 else timedelta(minutes=5)
        task = store.telemetry.tasks.claim(name, max_parallel=100, lease=lease, workspace_id="ws")
        if task is None:
            if all(task.state == "completed" for task in store.telemetry.tasks.list(workspace_id="ws")):
                break
            continue
        claims.append((task.id, task.claim_token))
        try:
            if store.telemetry.tasks.complete(task.id, token=task.claim_token, outcome=name, workspace_id="ws"):
                ends.append((task.id, task.claim_token))
        except LeaseLost:
            pass
    print(json.dumps([claims, ends]), flush=True)


def report(store: Store, name: str) -> None:
    """Say the same statuses as everybody else, and use something -> how many transitions it made."""
    made = 0
    for number in range(STATUSES):
        made += store.transact(lambda tx, n=number: tx.telemetry.status.record(f"s{n // 20}", instance_id="box") is not None)  # type: ignore[misc]  # a bound default
        second = START + timedelta(seconds=number)
        store.transact(lambda tx, at=second: tx.telemetry.usage.sample(at=at, token_input=1, instance_id="box"))  # type: ignore[misc]  # a bound default
    print(json.dumps(made), flush=True)


COMMANDS = {"crowd": crowd, "lapse": lapse, "report": report}

if __name__ == "__main__":
    _, command, url, argument = sys.argv
    with Store.open(url) as opened:
        COMMANDS[command](opened, argument)
