"""An AsyncWorker whose task is cancelled: alone, with its handlers, or before it began."""

import asyncio
import threading
from typing import Any

import pytest

from persist import AsyncStore
from persist.workers.claim_loop import ClaimLoop
from persist.workers.jobs import Job
from persist.workflows import AsyncWorker
from persist.workflows.schemas import WorkflowRun


async def queued(store: AsyncStore) -> str:
    run = await store.workflows.runs.create("build", trigger_id="t", current_phase="p", status="queued")
    return run.id


@pytest.mark.parametrize("whom", ["the worker", "all"])
async def test_a_run_whose_handler_is_cancelled_with_the_worker_has_not_failed(
    store: AsyncStore, whom: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio.run cancels every task when it is interrupted: a handler may end before the worker's thread hears of that."""
    if whom == "all":
        ended, end, end_jobs = threading.Event(), ClaimLoop.ended, ClaimLoop._end_jobs

        def store_end(loop: ClaimLoop, job: Job, error: BaseException | None) -> None:
            end(loop, job, error)
            ended.set()

        monkeypatch.setattr(ClaimLoop, "ended", store_end)
        monkeypatch.setattr(ClaimLoop, "_end_jobs", lambda loop: end_jobs(loop) if ended.wait(60) else None)
    id = await queued(store)
    began = asyncio.Event()

    async def handle(run: WorkflowRun) -> None:
        began.set()
        await asyncio.Event().wait()

    known = asyncio.all_tasks()
    worker = asyncio.create_task(AsyncWorker(store, {"build": handle}).run(signals=False))
    await began.wait()
    handlers = asyncio.all_tasks() - known - {worker}
    assert [task.get_name() for task in handlers] == [f"persist-run-{id}"]
    for task in [*(handlers if whom == "all" else ()), worker]:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await worker
    run = await store.workflows.runs.get(id)
    assert (run.status, run.lease_owner, run.attempt) == ("queued", None, 1)


async def test_a_handler_that_is_cancelled_alone_has_failed(store: AsyncStore) -> None:
    """Also where the task of the worker was cancelled earlier, and went on."""
    id = await queued(store)

    async def handle(run: WorkflowRun) -> None:
        current: Any = asyncio.current_task()
        current.cancel()
        await asyncio.sleep(0)

    task: Any = asyncio.current_task()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(0)
    await AsyncWorker(store, {"build": handle}).run(until_idle=True, signals=False)
    run = await store.workflows.runs.get(id)
    assert (run.status, run.context) == ("failed", {"error": "CancelledError: "})
    task.uncancel()
