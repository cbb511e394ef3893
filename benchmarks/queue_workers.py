"""Queues of empty runs, as the documentation of each library writes one. Only the environment of `make bench` has them.

A worker process says that it is ready, and whenever it is told to works until nothing is left; then it says when it began, in
seconds since 1970.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from persist import AsyncStore, Store
from persist.workflows import Worker

WORKFLOW = "empty"
PERSIST, PERSIST_ASYNC, PROCRASTINATE, DBOS = "persist", "persist, AsyncStore", "procrastinate", "DBOS"
AT_ONCE = 32
WIDE = f"persist, {AT_ONCE} runs at a time"
WIDE_ASYNC = f"persist, AsyncStore, {AT_ONCE} runs at a time"


class Rounds:
    """The pipe of a worker to the process that measures."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def wait(self) -> bool:
        """Say that it is ready; whether there is another round."""
        self._pipe.send("ready")
        return bool(self._pipe.recv())

    def began(self, at: float) -> None:
        """Say when the work of this round began."""
        self._pipe.send(at)


# ---------------------------------------------------------------- persist


def fill_persist(url: str) -> Callable[[int], None]:
    """A function that queues so many runs, a transaction each."""
    store = Store.open(url)

    def fill(count: int) -> None:
        for number in range(count):
            store.workflows.runs.create(WORKFLOW, trigger_id=f"issue/{number}", current_phase="plan", status="queued")

    return fill


def persist_worker(rounds: Rounds, url: str, number: int, **options: Any) -> None:
    with Store.open(url) as store:
        while rounds.wait():
            began = time.time()
            Worker(store, {WORKFLOW: lambda run: None}, name=f"worker {number}", **options).run(until_idle=True, signals=False)
            rounds.began(began)


def async_persist_worker(rounds: Rounds, url: str, number: int, **options: Any) -> None:
    async def nothing(run: object) -> None:
        pass

    async def work() -> None:
        async with AsyncStore.open(url) as store:
            while await asyncio.to_thread(rounds.wait):
                began = time.time()
                worker: Any = Worker(store, {WORKFLOW: nothing}, name=f"worker {number}", **options)  # type: ignore[arg-type]  # of a coroutine
                await worker.run(until_idle=True, signals=False)
                rounds.began(began)

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


def procrastinate_worker(rounds: Rounds, url: str, number: int) -> None:
    async def work() -> None:
        app = _app(url)
        async with app.open_async():
            while await asyncio.to_thread(rounds.wait):
                began = time.time()
                await app.run_worker_async(wait=False, name=f"worker {number}", install_signal_handlers=False)
                rounds.began(began)

    asyncio.run(work())


# ---------------------------------------------------------------- DBOS

_QUEUE = "bench"
_IDLE = 2.5
"""Seconds, more than two of its polls, in which a worker of DBOS has found nothing to start."""


def _config(url: str, number: int | str) -> Any:
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


def dbos_worker(rounds: Rounds, url: str, number: int) -> None:
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
    while rounds.wait():
        found.clear()
        asked = time.monotonic()
        while time.monotonic() - max([asked, *(at for _, at in found)]) < _IDLE:
            time.sleep(0.05)
        rounds.began(min((began for began, _ in found), default=float("inf")))


FILLS: dict[str, Callable[[str], Callable[[int], None]]] = {
    **dict.fromkeys((PERSIST, PERSIST_ASYNC, WIDE, WIDE_ASYNC), fill_persist),
    PROCRASTINATE: fill_procrastinate,
    DBOS: fill_dbos,
}
WORKERS: dict[str, Callable[[Rounds, str, int], None]] = {
    PERSIST: persist_worker,
    PERSIST_ASYNC: async_persist_worker,
    WIDE: partial(persist_worker, concurrency=AT_ONCE),
    WIDE_ASYNC: partial(async_persist_worker, concurrency=AT_ONCE),
    PROCRASTINATE: procrastinate_worker,
    DBOS: dbos_worker,
}
"""What a process does."""

_OURS = "SELECT count(*), extract(epoch FROM max(finished_at)) FROM persist.workflow_runs WHERE status = 'succeeded'"
ENDED: dict[str, str] = {
    **dict.fromkeys((PERSIST, PERSIST_ASYNC, WIDE, WIDE_ASYNC), _OURS),
    PROCRASTINATE: "SELECT count(*), extract(epoch FROM max(at)) FROM procrastinate_events WHERE type = 'succeeded'",
    DBOS: "SELECT count(*), max(completed_at) / 1000.0 FROM dbos.workflow_status WHERE status = 'SUCCESS'",
}
"""How many runs have ended, and when the last one did."""


def work(pipe: Connection, name: str, url: str, number: int) -> None:
    """One of the processes."""
    with suppress(EOFError):
        WORKERS[name](Rounds(pipe), url, number)
