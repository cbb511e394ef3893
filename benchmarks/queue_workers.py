"""Queues of empty runs, as the documentation of each library writes one: `python -m benchmarks.queue_workers NAME URL NUMBER`.

Only the environment of `make bench` has the libraries. A worker process says "ready", and at each line on its standard input
works until nothing is left; then it says when it began, in seconds since 1970.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

from persist import AsyncStore, Store
from persist.workflows import Worker

WORKFLOW = "empty"
PERSIST, PERSIST_ASYNC, PROCRASTINATE, DBOS = "persist", "persist, AsyncStore", "procrastinate", "DBOS"


def _wait() -> bool:
    """Whether there is another round."""
    print("ready", flush=True)
    return bool(sys.stdin.readline())


def _began(at: float) -> None:
    print(at, flush=True)


# ---------------------------------------------------------------- persist


def fill_persist(url: str) -> Callable[[int], None]:
    """A function that queues so many runs, a transaction each."""
    store = Store.open(url)

    def fill(count: int) -> None:
        for number in range(count):
            store.workflows.runs.create(WORKFLOW, trigger_id=f"issue/{number}", current_phase="plan", status="queued")

    return fill


def persist_worker(url: str, number: str) -> None:
    with Store.open(url) as store:
        while _wait():
            began = time.time()
            Worker(store, {WORKFLOW: lambda run: None}, name=f"worker {number}").run(until_idle=True, signals=False)
            _began(began)


def async_persist_worker(url: str, number: str) -> None:
    async def nothing(run: object) -> None:
        pass

    async def work() -> None:
        async with AsyncStore.open(url) as store:
            while await asyncio.to_thread(_wait):
                began = time.time()
                worker: Any = Worker(store, {WORKFLOW: nothing}, name=f"worker {number}")  # type: ignore[arg-type]  # of a coroutine
                await worker.run(until_idle=True, signals=False)
                _began(began)

    asyncio.run(work())


# ---------------------------------------------------------------- procrastinate


def _app(url: str) -> Any:
    import procrastinate

    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))

    @app.task(name=WORKFLOW)
    async def empty(trigger: str) -> None:
        pass

    return app


def fill_procrastinate(url: str) -> Callable[[int], None]:
    import procrastinate

    app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url))
    app.open()
    app.schema_manager.apply_schema()

    @app.task(name=WORKFLOW)
    def empty(trigger: str) -> None:
        pass

    def fill(count: int) -> None:
        for number in range(count):
            empty.defer(trigger=f"issue/{number}")

    return fill


def procrastinate_worker(url: str, number: str) -> None:
    async def work() -> None:
        app = _app(url)
        async with app.open_async():
            while await asyncio.to_thread(_wait):
                began = time.time()
                await app.run_worker_async(wait=False, name=f"worker {number}", install_signal_handlers=False)
                _began(began)

    asyncio.run(work())


# ---------------------------------------------------------------- DBOS

_QUEUE = "bench"
_IDLE = 2.5
"""Seconds, more than two of its polls, in which a worker of DBOS has found nothing to start."""


def _config(url: str, number: str) -> Any:
    return {
        "name": "bench",
        "system_database_url": url,
        "executor_id": f"worker {number}",
        "application_version": "1",
        "log_level": "ERROR",
        "run_admin_server": False,
    }


def fill_dbos(url: str) -> Callable[[int], None]:
    from dbos import DBOS, DBOSClient

    DBOS(config=_config(url, "setup"))
    DBOS.launch()
    DBOS.register_queue(_QUEUE)
    DBOS.destroy()
    client = DBOSClient(system_database_url=url, application_name="bench")

    def fill(count: int) -> None:
        for number in range(count):
            client.enqueue({"queue_name": _QUEUE, "workflow_name": WORKFLOW}, f"issue/{number}")

    return fill


def dbos_worker(url: str, number: str) -> None:
    """Its clock runs from the beginning of the first poll that found something: what it waited for its poll is not counted."""
    from dbos import DBOS

    DBOS(config=_config(url, number))
    found: list[tuple[float, float]] = []

    @DBOS.workflow(name=WORKFLOW)
    def empty(trigger: str) -> None:
        pass

    DBOS.launch()
    from dbos._dbos import _get_dbos_instance

    database = _get_dbos_instance()._sys_db
    dequeue = database.start_queued_workflows

    def noted(*args: Any, **options: Any) -> Any:
        began = time.time()
        result = dequeue(*args, **options)
        if result[0]:
            found.append((began, time.monotonic()))
        return result

    database.start_queued_workflows = noted
    while _wait():
        found.clear()
        asked = time.monotonic()
        while time.monotonic() - max([asked, *(at for _, at in found)]) < _IDLE:
            time.sleep(0.05)
        _began(min((began for began, _ in found), default=float("inf")))


FILLS: dict[str, Callable[[str], Callable[[int], None]]] = {
    PERSIST: fill_persist,
    PERSIST_ASYNC: fill_persist,
    PROCRASTINATE: fill_procrastinate,
    DBOS: fill_dbos,
}
WORKERS: dict[str, Callable[[str, str], None]] = {
    PERSIST: persist_worker,
    PERSIST_ASYNC: async_persist_worker,
    PROCRASTINATE: procrastinate_worker,
    DBOS: dbos_worker,
}
"""What a process does."""

ENDED: dict[str, str] = {
    PERSIST: "SELECT count(*), extract(epoch FROM max(finished_at)) FROM persist.workflow_runs WHERE status = 'succeeded'",
    PROCRASTINATE: "SELECT count(*), extract(epoch FROM max(at)) FROM procrastinate_events WHERE type = 'succeeded'",
    DBOS: "SELECT count(*), max(completed_at) / 1000.0 FROM dbos.workflow_status WHERE status = 'SUCCESS'",
}
"""How many runs have ended, and when the last one did."""
ENDED[PERSIST_ASYNC] = ENDED[PERSIST]

if __name__ == "__main__":
    _, name, place, worker = sys.argv
    WORKERS[name](place, worker)
