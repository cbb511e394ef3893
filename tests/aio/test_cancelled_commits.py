"""A task that is cancelled while its transaction commits: the commit stands, and what it claimed can be found again."""

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from persist import AsyncStore, LeaseLost
from persist.db.transactions.database_transaction import DatabaseTransaction
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


def test_a_task_that_is_cancelled_while_its_verb_ends_interrupts_nobody(
    with_store: WithStore[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is about to be somebody else's."""
    ending, go_on, asked = threading.Event(), threading.Event(), threading.Event()
    interrupted: list[object] = []
    interrupt = DatabaseTransaction.interrupt

    async def body(store: AsyncStore) -> None:
        transactions = type(store._store.runtime.transactions)
        end_read = transactions.end_read

        def slow(*arguments: Any) -> None:
            ending.set()
            go_on.wait(ENOUGH)
            end_read(*arguments)

        def asking(self: DatabaseTransaction) -> None:
            interrupt(self)
            asked.set()

        monkeypatch.setattr(transactions, "end_read", slow)
        monkeypatch.setattr(transactions, "interrupt", lambda self, driver: interrupted.append(driver))
        monkeypatch.setattr(DatabaseTransaction, "interrupt", asking)
        task = asyncio.create_task(store.chat.sessions.list())
        assert await asyncio.to_thread(ending.wait, ENOUGH)
        task.cancel()
        assert await asyncio.to_thread(asked.wait, ENOUGH)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    with_store(body)
    assert interrupted == []


def test_a_connection_is_nobody_elses_before_its_interrupt_is_over(
    with_store: WithStore[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    async def body(store: AsyncStore) -> None:
        runtime = store._store.runtime
        interrupting, release = threading.Event(), runtime.connections.release

        def slow(*_: object) -> None:
            interrupting.set()
            time.sleep(0.05)
            order.append("interrupted")

        def released(*arguments: Any, **options: Any) -> None:
            order.append("released")
            release(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(runtime.transactions, "interrupt", slow)
            patch.setattr(runtime.connections, "release", released)
            work = UnitOfWork(runtime, writable=False)
            work.begin()
            other = threading.Thread(target=work.interrupt)
            other.start()
            assert interrupting.wait(ENOUGH)
            work.end_read()
            other.join(ENOUGH)

    with_store(body)
    assert order == ["interrupted", "released"]
