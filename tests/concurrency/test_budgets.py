"""A budget holds across processes: sixteen of them claim and spend at once."""

import json
from contextlib import ExitStack
from typing import Any

from persist import Store
from tests.concurrency.budget_worker import COST
from tests.concurrency.test_threads import together
from tests.contract.workflows.scenes import HOUR
from tests.subprocesses import Worker

WORKERS, RUNS, LIMIT = 16, 64, 250


def test_no_budget_is_passed_by_more_than_what_was_in_flight(store: Store, database_url: str) -> None:
    """Every call is counted, and of all that pass 80 and 100 per cent one says so."""
    store.switch_events(True)
    store.usage.budgets.set("owner:maria", "total", LIMIT)
    store.usage.budgets.set("workflow:build", "total", 100 * LIMIT)
    with store.begin() as tx:
        for number in range(RUNS):
            about: dict[str, Any] = {"trigger_id": f"t{number}", "current_phase": "plan", "status": "queued"}
            tx.workflows.runs.create("build", **about, concurrency_key="owner:maria")
    with ExitStack() as stack:
        workers = [
            stack.enter_context(Worker("tests.concurrency.budget_worker", database_url, f"w{number}", stdin=True))
            for number in range(WORKERS)
        ]
        for worker in workers:
            assert json.loads(worker.stdout.readline()) == "ready"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        done = sum(json.loads(worker.stdout.readline()) for worker in workers)
    spent = COST * done
    assert LIMIT <= spent <= LIMIT + COST * WORKERS
    assert store.workflows.runs.count(status="queued") == RUNS - done
    with store.read() as tx:
        assert [one.cost_usd_micros for one in tx.usage.budgets.standings()] == [spent, spent]
        assert [one.cost_usd_micros for one in tx.usage.by_group("owner").items] == [spent]
        types = [event.type for event in tx.events.read("usage", limit=1000)]
    assert [types.count(name) for name in ("budget.warned", "budget.exceeded")] == [1, 1]
    store.usage.budgets.delete("owner:maria", "total")
    assert store.workflows.runs.claim("late", lease=HOUR) is not None


def test_a_budget_that_is_set_while_others_write_misses_no_call(store: Store) -> None:
    def spend() -> None:
        for _ in range(20):
            store.usage.calls.record(model="large", run_id="r", owner="maria", cost_usd_micros=1)

    def limit() -> None:
        for _ in range(6):
            store.usage.budgets.set("owner:maria", "total", 10_000)

    together([spend] * 4 + [limit])
    with store.read() as tx:
        (standing,) = tx.usage.budgets.standings("owner:maria")
    assert standing.cost_usd_micros == 80
