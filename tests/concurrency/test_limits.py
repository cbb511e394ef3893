"""Workers that claim at once: no limit and no budget is passed."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from persist import Store
from tests.at_once import together
from tests.concurrency.budget_worker import COST
from tests.contract.workflows.scenes import HOUR, claim, do, queue
from tests.subprocesses import Worker

WORKERS = 16
PER = timedelta(milliseconds=400)


@pytest.fixture
def workers(database_url: str) -> Iterator[list[Worker]]:
    """Processes that wait for the word; none outlives the test."""
    with ExitStack() as stack:
        begun = []
        for number in range(WORKERS):
            given = ("under_limits", database_url, f"w{number}", 3600)
            worker = Worker("tests.concurrency.workflow_worker", *given, stdin=True)
            stack.callback(worker.close)
            begun.append(worker)
        for worker in begun:
            assert json.loads(worker.stdout.readline()) == "ready"
        yield begun


def test_no_limit_is_passed_by_sixteen_processes(store: Store, workers: list[Worker]) -> None:
    """What runs at once, and what starts in a period, is counted from what each process knows for certain."""
    limits = {"workflow:build": 5, "acme": 2, "one": 1}
    for key, concurrency in limits.items():
        store.workflows.limits.set(key, concurrency)
    store.workflows.limits.set("rated", rate=4, per=PER)
    keys: dict[str, tuple[str, str | None]] = {}
    for number in range(96):
        name = ("build", "label", "check")[number % 3]
        under = (None, "acme", "one", "rated")[number % 4]
        if under == "rated" and number >= 48:
            under = None
        keys[queue(store, workflow_name=name, concurrency_key=under, priority=number % 2)] = (f"workflow:{name}", under)
    for worker in workers:
        worker.tell()
    done = [tuple(one) for worker in workers for one in json.loads(worker.stdout.readline())]
    assert Counter(id for id, _, _ in done) == dict.fromkeys(keys, 1)
    assert store.workflows.runs.count(status="succeeded") == len(keys)
    changes: dict[str | None, list[tuple[float, int]]] = defaultdict(list)
    for id, claimed, ended in done:
        for one in keys[id]:
            changes[one] += [(claimed, 1), (ended, -1)]
    for key, most in limits.items():
        running = 0
        for _, change in sorted(changes[key]):
            running += change
            assert running <= most
    starts = [run.updated_at for run in store.workflows.runs.list(limit=1000).items if keys[run.id][1] == "rated"]
    assert len(starts) == 12
    with store.read() as tx:
        assert tx.workflows.limits.get("rated") is not None


def test_of_a_place_that_many_want_one_gets_it(store: Store) -> None:
    store.workflows.limits.set("acme", 1)
    for _ in range(20):
        ids = [queue(store, concurrency_key="acme") for _ in range(3)]
        leases = [lease for lease in together([lambda: claim(store)] * 6) if lease is not None]
        assert len(leases) <= 1
        for lease in leases or [claim(store)]:
            assert lease is not None
            do(store, "complete", lease)
        for id in ids:
            do(store, "cancel", id)


def test_starts_of_many_keep_their_distance(store: Store) -> None:
    """Three in any period, as the claims' own instants say."""
    store.workflows.limits.set("acme", rate=3, per=PER)
    ids = [queue(store, concurrency_key="acme") for _ in range(9)]
    starts = []

    def drain() -> None:
        while store.workflows.runs.count(status="queued"):
            lease = claim(store)
            if lease is not None:
                starts.append(lease.run.updated_at)

    together([drain] * 6)
    assert len(starts) == len(ids)
    ordered = sorted(starts)
    assert all(later - earlier >= PER for earlier, later in zip(ordered, ordered[3:], strict=False))
    assert all(earlier <= later for earlier, later in pairwise(ordered))


def test_on_postgres_a_limit_that_is_locked_holds_up_nobody_else(postgres_url: str) -> None:
    with Store.open(postgres_url) as store:
        store.workflows.limits.set("acme", 5)
        first, _ = queue(store, concurrency_key="acme"), queue(store, concurrency_key="acme")
        other = queue(store, concurrency_key="other")
        with store.begin() as tx:
            mine = tx.workflows.runs.claim("w1", lease=timedelta(hours=1))
            assert mine is not None
            assert mine.run_id == first
            (found,) = together([lambda: [claim(store, "w2"), claim(store, "w3")]])
        assert [lease and lease.run_id for lease in found] == [other, None]
        assert claim(store, "w3") is not None


# A budget holds across processes: sixteen of them claim and spend at once.


SPENDERS, RUNS, LIMIT = 16, 64, 250


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
            for number in range(SPENDERS)
        ]
        for worker in workers:
            assert json.loads(worker.stdout.readline()) == "ready"
        for worker in workers:
            worker.tell()
        done = sum(json.loads(worker.stdout.readline()) for worker in workers)
    spent = COST * done
    assert LIMIT <= spent <= LIMIT + COST * SPENDERS
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
