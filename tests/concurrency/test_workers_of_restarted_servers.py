"""Workers of `persist.workflows` whose Postgres server is restarted: they go on, and every run is done."""

import asyncio
import signal
import threading
import time
from datetime import timedelta
from functools import partial

import psycopg
import pytest

from persist import AsyncStore, Store
from persist.schema.migrate import upgrade
from persist.workflows import AsyncWorker, Worker
from persist.workflows.schemas import WorkflowRun
from tests.concurrency.test_restarted_servers import own_server, restart
from tests.contract.chat.scenes import eventually
from tests.torture.servers import Server

__all__ = ["own_server"]
RUNS = 400
LEASE, PATIENCE = timedelta(seconds=10), 120.0


def handle(run: WorkflowRun) -> None:
    time.sleep(0.01)


async def handle_async(run: WorkflowRun) -> None:
    await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
def test_workers_outlive_restarts(own_server: Server, how: int) -> None:
    upgrade(own_server.url)
    with Store.open(own_server.url) as store:
        with store.begin() as tx:
            for _ in range(RUNS):
                tx.workflows.runs.create("build", trigger_id="t", current_phase="p", status="queued", max_restarts=100)
        worker = Worker(store, {"build": handle}, lease=LEASE, concurrency=2)
        started: list[AsyncWorker] = []

        async def work() -> None:
            async with AsyncStore.open(own_server.url) as own:
                started.append(AsyncWorker(own, {"build": handle_async}, lease=LEASE, concurrency=2))
                await started[0].run(signals=False)

        threads = [threading.Thread(target=worker.run), threading.Thread(target=lambda: asyncio.run(work()))]
        for thread in threads:
            thread.start()
        try:
            # a server that is restarted before would refuse to open the store
            assert eventually(lambda: bool(started), seconds=PATIENCE)
            for share in (4, 2):
                assert eventually(partial(ended, own_server, RUNS // share), seconds=PATIENCE)
                restart(own_server, how)
            assert eventually(partial(ended, own_server, RUNS), seconds=PATIENCE)
            assert all(thread.is_alive() for thread in threads)
        finally:
            for one in (worker, *started):
                one.stop()
            for thread in threads:
                thread.join(60)
        assert not any(thread.is_alive() for thread in threads)


def ended(server: Server, number: int) -> bool:
    """Whether so many runs have ended."""
    try:
        rows = server.run(f"SELECT 1 FROM persist.workflow_runs WHERE status = 'succeeded' HAVING count(*) >= {number}")
    except psycopg.Error:  # the server ends or starts
        return False
    return bool(rows)
