"""Observers of AsyncStore: told on the event loop, after the commit, with what they return awaited."""

import asyncio
import threading
from typing import Any

from persist import AsyncStore
from persist.workflows.schemas import WorkflowRun


async def new_run(store: AsyncStore) -> str:
    async with store.begin() as tx:
        run = await tx.workflows.runs.create("build", trigger_id="t", current_phase="plan")
    return run.id


async def cancel(store: AsyncStore, id: str) -> bool:
    async with store.begin() as tx:
        return await tx.workflows.runs.cancel(id)


async def test_it_is_told_on_the_loops_own_thread_before_the_transaction_is_left(store: AsyncStore) -> None:
    told: list[tuple[str, int, object]] = []

    def plain(run: WorkflowRun) -> None:
        told.append((run.id, threading.get_ident(), asyncio.get_running_loop()))

    async def coroutine(run: WorkflowRun) -> None:
        await asyncio.sleep(0)
        told.append((run.id, threading.get_ident(), asyncio.get_running_loop()))

    store.on_run_finished(plain)
    store.on_run_finished(coroutine)
    id = await new_run(store)
    assert told == []
    assert await cancel(store, id)
    assert told == [(id, threading.get_ident(), asyncio.get_running_loop())] * 2


async def test_a_coroutine_function_may_write_in_a_transaction_of_its_own(store: AsyncStore) -> None:
    names: list[str] = []

    async def follow(run: WorkflowRun) -> None:
        names.append(run.workflow_name)
        async with store.begin() as tx:
            assert await tx.workflows.runs.get(run.id) == run
            if run.workflow_name == "build":
                made = await tx.workflows.runs.create("deploy", trigger_id="t", current_phase="start")
                await tx.workflows.runs.finish(made.id, "succeeded")

    store.on_run_finished(follow)
    await cancel(store, await new_run(store))
    assert names == ["build", "deploy"]


async def test_many_tasks_tell_of_each_run_once(store: AsyncStore) -> None:
    told: list[str] = []

    async def coroutine(run: WorkflowRun) -> None:
        await asyncio.sleep(0)
        told.append(run.id)

    store.on_run_finished(coroutine)
    ids = [await new_run(store) for _ in range(12)]
    won = await asyncio.gather(*(cancel(store, id) for id in ids * 2))
    assert sum(won) == 12
    assert sorted(told) == sorted(ids)


async def test_cancelled_at_any_moment_it_is_told_exactly_if_the_run_ended(store: AsyncStore) -> None:
    told: list[str] = []
    store.on_run_finished(lambda run: told.append(run.id))
    ids = [await new_run(store) for _ in range(40)]
    for number, id in enumerate(ids):
        task: asyncio.Task[Any] = asyncio.create_task(cancel(store, id))
        for _ in range(number):
            await asyncio.sleep(0.0001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with store.read() as tx:
        ended = [run.id for run in (await tx.workflows.runs.list(status="cancelled", limit=100)).items]
    assert sorted(told) == sorted(ended)
