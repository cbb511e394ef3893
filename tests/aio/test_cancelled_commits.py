"""A task that is cancelled while its transaction commits: the commit stands, and what it claimed can be found again."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from persist import AsyncStore, LeaseLost
from persist.db.transactions.unit_of_work import UnitOfWork
from tests.aio.conftest import WithStore
from tests.aio.loops import ENOUGH

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("at", ["before it", "after it"])
def test_a_claim_whose_worker_was_cancelled_is_found(
    with_store: WithStore[object], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    reached, go_on = threading.Event(), threading.Event()
    commit = UnitOfWork.commit

    def slow(self: UnitOfWork) -> None:
        if at == "after it":
            commit(self)
        reached.set()
        go_on.wait(ENOUGH)
        if at == "before it":
            commit(self)

    async def body(store: AsyncStore) -> None:
        async with store.begin() as tx:
            run = await tx.workflows.runs.create("build", trigger_id="t", current_phase="plan", status="queued")
        got: list[Any] = []

        async def worker() -> None:
            async with store.begin() as tx:
                lease = await tx.workflows.runs.claim("w1", lease=HOUR)
            got.append(lease)

        with monkeypatch.context() as patch:
            patch.setattr(UnitOfWork, "commit", slow)
            task = asyncio.create_task(worker())
            assert await asyncio.to_thread(reached.wait, ENOUGH)
            task.cancel()
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert got == []
        async with store.begin() as tx:
            assert await tx.workflows.runs.claim("w1", lease=HOUR) is None
            (lease,) = await tx.workflows.runs.held_by("w1")
            assert lease.run_id == run.id
            with pytest.raises(LeaseLost):
                await tx.workflows.runs.append_phase(run.id, "plan")
            await tx.workflows.runs.append_phase(run.id, "plan", lease=lease)
            await tx.workflows.runs.finish(run.id, "succeeded", lease=lease)

    with_store(body)
