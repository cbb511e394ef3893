"""Processes that want the same tasks, and that report of the same instance."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import chain, pairwise
from threading import Barrier
from typing import Any

from persist import Store
from persist.settings import Settings
from tests.concurrency.telemetry_worker import START, STATUSES
from tests.subprocesses import output_of

PROCESSES = 3
MANY = 8


def together(url: str, command: str, processes: int = PROCESSES) -> list[Any]:
    """Run the worker's command in several processes at once -> what each reported."""

    def run(number: int) -> Any:
        return json.loads(output_of("tests.concurrency.telemetry_worker", command, url, f"box-{number}"))

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(run, range(processes)))


def queue(store: Store, count: int) -> list[str]:
    ids = [f"t{number:03}" for number in range(count)]
    with store.begin() as tx:
        tx.telemetry.tasks.poll([{"id": id, "source_id": "s", "kind": "k", "title": id} for id in ids], workspace_id="ws")
    return ids


def test_claimers_get_different_tasks(store: Store, database_url: str) -> None:
    """12"""
    ids = queue(store, 60)
    claimed = together(database_url, "claim")
    assert sorted(chain.from_iterable(claimed)) == ids
    assert all(mine == sorted(mine) for mine in claimed)
    with store.read() as tx:
        owners = {task.id: task.instance_name for task in tx.telemetry.tasks.list(workspace_id="ws")}
    assert owners == {id: f"box-{number}" for number, mine in enumerate(claimed) for id in mine}


def test_claimers_do_not_exceed_the_cap_together(store: Store, database_url: str) -> None:
    """12"""
    ids = queue(store, 20)
    assert sorted(chain.from_iterable(together(database_url, "crowd"))) == ids[:3]


def test_of_claimers_with_leases_each_task_is_done_by_one_at_a_time(store: Store, database_url: str) -> None:
    """No two claims have the same token, and a task is ended once, by its last claim, however many instances stalled before."""
    ids = queue(store, 40)
    reports = together(database_url, "lapse", MANY)
    claims = [tuple(claim) for claimed, _ in reports for claim in claimed]
    ends = {task: token for _, ended in reports for task, token in ended}
    assert len(claims) == len(set(claims))
    assert sum(len(ended) for _, ended in reports) == len(ids)
    last = {task: max(token for one, token in claims if one == task) for task in ids}
    assert ends == last
    assert sorted(claims) == [(task, token) for task in ids for token in range(1, last[task] + 1)]
    by = {task: f"box-{number}" for number, (_, ended) in enumerate(reports) for task, _ in ended}
    found = store.telemetry.tasks.list(workspace_id="ws")
    assert {task.id: (task.state, task.instance_name, task.outcome) for task in found} == {
        task: ("completed", box, box) for task, box in by.items()
    }


def test_reporters_of_one_instance_lose_nothing_and_repeat_nothing(store: Store, database_url: str) -> None:
    """Each status differs from the one before it, and every sample is in the sum."""
    made = together(database_url, "report")
    with store.read() as tx:
        history = [entry.new_status for entry in tx.telemetry.status.history(limit=1000, instance_id="box")]
        totals = tx.telemetry.usage.totals(instance_id="box")
    assert sum(made) == len(history)
    assert all(one != next for one, next in pairwise(history))
    assert (totals.samples, totals.token_input) == (STATUSES, PROCESSES * STATUSES)


def test_of_reporters_in_a_tiny_window_each_finds_what_it_just_reported(database_url: str) -> None:
    """Their clocks run apart, and each adds to seconds that another one's trim is about to take."""
    threads, samples = 6, 25
    ready = Barrier(threads)

    def run(store: Store, number: int) -> int:
        found = 0
        ready.wait()
        for count in range(samples):
            at = START + timedelta(seconds=count % 7 if number % 2 else count * 1000 - number * 100_000)
            with store.begin() as tx:
                tx.telemetry.usage.sample(at=at, token_input=1, instance_id="box")
                found += tx.telemetry.usage.totals(at, at + timedelta(seconds=1), instance_id="box").samples
        return found

    settings = Settings(usage_samples_keep=2, usage_samples_trim_every=1)
    with Store.open(database_url, settings=settings) as store, ThreadPoolExecutor(threads) as pool:
        assert list(pool.map(run, [store] * threads, range(threads))) == [samples] * threads
        with store.read() as tx:
            assert tx.telemetry.usage.totals(instance_id="box").samples == 2
