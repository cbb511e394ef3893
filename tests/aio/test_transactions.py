"""Async transactions: whose they are, what cancellation leaves behind, and that the loop goes on meanwhile."""

import asyncio
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist import AsyncStore, LeaseLost, StoreBusy, TransactionOpen, WrongOwner
from persist.db.concurrency.worker_threads import Workers
from persist.db.transactions.database_transaction import DatabaseTransaction
from persist.db.transactions.unit_of_work import UnitOfWork
from tests.aio.conftest import new_session
from tests.aio.loops import ENOUGH


async def test_gather_inside_a_transaction_runs_one_verb_after_the_other(store: AsyncStore) -> None:
    session_id = await new_session(store)
    async with store.begin() as tx:
        appended = [
            tx.chat.messages.append(session_id, role="user", parts=[{"type": "text", "text": str(number)}])
            for number in range(10)
        ]
        await asyncio.gather(*appended)
    async with store.read() as tx:
        assert len(await tx.chat.messages.list(session_id)) == 10


async def test_a_snapshot_on_a_connection_that_is_ready_is_one_hop_for_each_verb(
    store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hops: list[int] = []
    call = Workers.call

    async def counted(self: Workers, *args: Any) -> Any:
        hops.append(1)
        return await call(self, *args)

    monkeypatch.setattr(Workers, "call", counted)

    session_id = await new_session(store)
    seen = []
    for _ in range(50):
        await asyncio.sleep(0.005)  # by then a server has nearly always answered
        hops.clear()
        async with store.read() as tx:
            assert (await tx.chat.sessions.get(session_id)).id == session_id
            assert await tx.chat.messages.list(session_id) == []
        seen.append(len(hops))
    assert seen[0] == 3, "it has to connect"
    assert min(seen) == 2


async def test_snapshots_at_the_same_time_are_each_whole(store: AsyncStore) -> None:
    session_id = await new_session(store)

    async def write(number: int) -> None:
        async with store.begin() as tx:
            for _ in range(2):
                await tx.chat.messages.append(session_id, role="user", parts=[{"type": "text", "text": str(number)}])

    async def look() -> None:
        for _ in range(20):
            async with store.read() as tx:
                first = await tx.chat.messages.list(session_id)
                await asyncio.sleep(0)
                assert await tx.chat.messages.list(session_id) == first
                assert len(first) % 2 == 0

    await asyncio.gather(*(write(number) for number in range(10)), *(look() for _ in range(8)))


async def test_a_task_that_did_not_enter_the_transaction_uses_it_when_nobody_else_does(store: AsyncStore) -> None:
    session_id = await new_session(store)
    handed_over: asyncio.Queue[Any] = asyncio.Queue()
    used = asyncio.Event()

    async def stranger() -> None:
        tx = await handed_over.get()
        await tx.chat.sessions.get(session_id)
        used.set()
        using = await handed_over.get()
        with pytest.raises(WrongOwner):
            await tx.chat.sessions.get(session_id)
        await using

    task = asyncio.create_task(stranger())
    await asyncio.sleep(0)
    async with store.begin() as tx:
        handed_over.put_nowait(tx)
        await used.wait()
        using = asyncio.create_task(tx.chat.prompts.put("meanwhile"))
        await asyncio.sleep(0)
        handed_over.put_nowait(using)
        await task


async def test_a_nested_begin_is_refused_at_once_and_a_later_one_is_not(store: AsyncStore) -> None:
    session_id = await new_session(store)
    started = asyncio.Event()
    ended = asyncio.Event()

    async def child() -> None:
        with pytest.raises(TransactionOpen):
            async with store.begin():
                pass
        recorder = store.record(session_id)
        with pytest.raises(TransactionOpen):
            await recorder.feed({"type": "start"})
        started.set()
        await ended.wait()
        async with store.begin() as tx:
            await tx.chat.sessions.get(session_id)

    async with store.begin():
        task = asyncio.create_task(child())
        await started.wait()
    ended.set()
    await task


async def test_cancellation_at_any_moment_commits_nothing_and_leaks_nothing(store: AsyncStore) -> None:
    session_id = await new_session(store)
    dice = random.Random(7)
    finished = 0

    async def writer(number: int) -> None:
        nonlocal finished
        async with store.begin() as tx:
            for part in range(3):
                await tx.chat.messages.append(session_id, role="user", parts=[{"type": "text", "text": f"{number} {part}"}])
        finished += 1

    for number in range(60):
        task = asyncio.create_task(writer(number))
        for _ in range(dice.randrange(30)):
            await asyncio.sleep(0)
        await asyncio.sleep(dice.random() * 0.004)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with store.begin() as tx:  # the lock is free, the pool is whole
        messages = await tx.chat.messages.list(session_id)
    texts = [message["parts"][0]["text"].split() for message in messages]
    whole = {number for number, _ in texts}
    assert len(texts) == 3 * len(whole)
    assert len(whole) >= finished


async def test_the_loop_goes_on_while_a_begin_waits_for_another_process(sqlite_url: str) -> None:
    async with AsyncStore.open(sqlite_url) as store:
        session_id = await new_session(store)
        locked, release = threading.Event(), threading.Event()

        def other() -> None:
            connection = sqlite3.connect(str(store.path), isolation_level=None)
            connection.execute("BEGIN IMMEDIATE")
            locked.set()
            release.wait(30)
            connection.execute("ROLLBACK")
            connection.close()

        holder = threading.Thread(target=other)
        holder.start()
        await asyncio.to_thread(locked.wait)

        async def write() -> None:
            async with store.begin() as tx:
                await tx.chat.sessions.update_metadata(session_id, {"seen": True})

        task = asyncio.create_task(write())
        for _ in range(20):  # were the loop blocked, nobody would release the lock
            await asyncio.sleep(0.005)
        cancelled = asyncio.create_task(write())
        await asyncio.sleep(0.01)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        release.set()
        await task
        await asyncio.to_thread(holder.join)


async def test_a_begin_that_is_cancelled_twice_keeps_nobody_waiting(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """First while it is opened, and once more while that is undone."""
    reached, go_on = threading.Semaphore(0), threading.Semaphore(0)

    def slow(step: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any) -> None:
            step(*args)
            reached.release()
            go_on.acquire(timeout=ENOUGH)

        return run

    async def hold(store: AsyncStore) -> None:
        async with store.begin():
            pytest.fail("it was cancelled")

    async with AsyncStore.open(sqlite_url) as store:
        with monkeypatch.context() as patch:
            patch.setattr(UnitOfWork, "begin", slow(UnitOfWork.begin))
            patch.setattr(UnitOfWork, "rollback", slow(UnitOfWork.rollback))
            task = asyncio.create_task(hold(store))
            for _ in range(2):
                await asyncio.to_thread(reached.acquire, timeout=ENOUGH)
                task.cancel()
                await asyncio.sleep(0)
                go_on.release()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with store.begin() as tx:
            await tx.chat.prompts.put("after")


async def test_a_transaction_that_does_not_end_is_said_to_be_waited_for(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persist.db.transactions.async_transactions.PATIENCE", 0.1)
    async with AsyncStore.open(sqlite_url) as store:
        other = asyncio.Event()

        async def hold() -> None:
            async with store.begin():
                held.set()
                await other.wait()

        held = asyncio.Event()
        holder = asyncio.create_task(hold())
        await held.wait()
        with pytest.raises(StoreBusy, match=r"none of the writing transactions .* ends \(open: 1\)"):
            await store.chat.prompts.put("late")
        other.set()
        await holder
        await store.chat.prompts.put("in time")


# A task that is cancelled while its transaction commits: the commit stands, and what it claimed can be found again.


HOUR = timedelta(hours=1)


@pytest.mark.parametrize("at", ["before it", "after it"])
async def test_a_claim_whose_worker_was_cancelled_is_found(store: AsyncStore, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    reached, go_on = threading.Event(), threading.Event()
    commit = UnitOfWork.commit

    def slow(self: UnitOfWork) -> None:
        if at == "after it":
            commit(self)
        reached.set()
        go_on.wait(ENOUGH)
        if at == "before it":
            commit(self)

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


async def test_a_task_that_is_cancelled_while_its_verb_ends_interrupts_nobody(
    store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is about to be somebody else's."""
    ending, go_on, asked = threading.Event(), threading.Event(), threading.Event()
    interrupted: list[object] = []
    interrupt = DatabaseTransaction.interrupt

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
    assert interrupted == []


async def test_a_connection_is_nobody_elses_before_its_interrupt_is_over(
    store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

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
    assert order == ["interrupted", "released"]
