"""Thousands of calls of a PersistStore at once: those of one turn of the event loop share transactions, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.errors import InvalidValue, TransactionOpen
from persist.integrations.langgraph import PersistStore
from persist.testing import FrozenClock

Run = Callable[[Callable[[Any], Awaitable[None]]], None]


@pytest.fixture
def run(database_url: str, face: str, clock: FrozenClock) -> Run:
    """Awaits a function of a store, which each face opens on the function's own loop."""

    async def on_loop(body: Callable[[Any], Awaitable[None]]) -> None:
        if face == "sync":
            with Store.open(database_url, clock=clock) as store:
                await body(store)
        else:
            async with AsyncStore.open(database_url, clock=clock) as other:
                await body(other)

    return lambda body: asyncio.run(on_loop(body))


def counted(items: PersistStore) -> list[bool]:
    """Whether they write, of the transactions that a store will run."""
    begun, bridge = [], items._bridge
    inner = bridge.run_async

    async def run_async(function: Any, *, writes: bool) -> Any:
        begun.append(writes)
        return await inner(function, writes=writes)

    bridge.run_async = run_async  # type: ignore[method-assign]  # counts
    return begun


def test_a_thousand_at_once_are_a_few_transactions(run: Run) -> None:
    async def body(store: Any) -> None:
        items = PersistStore(store)
        begun = counted(items)
        await asyncio.gather(*(items.aput(("docs",), f"{n}", {"n": n}) for n in range(1000)))
        found = await asyncio.gather(*(items.aget(("docs",), f"{n}") for n in range(1000)))
        assert [item is not None and item.value["n"] for item in found] == list(range(1000))
        assert begun == [True] * 5 + [False] * 5

    run(body)


def test_a_call_alone_waits_for_nobody(run: Run) -> None:
    async def body(store: Any) -> None:
        items = PersistStore(store)
        begun = counted(items)
        await items.aput(("docs",), "k", {"n": 1})
        assert (await items.aget(("docs",), "k")).value == {"n": 1}  # type: ignore[union-attr]  # it is there
        assert begun == [True, False]

    run(body)


def test_puts_of_one_key_happen_in_the_order_of_the_calls_each_later_than_the_last(run: Run, clock: FrozenClock) -> None:
    async def body(store: Any) -> None:
        items = PersistStore(store)
        await asyncio.gather(*(items.aput(("docs",), "k", {"n": n}) for n in range(450)))
        found = await items.aget(("docs",), "k")
        assert found is not None
        assert found.value == {"n": 449}
        assert found.created_at == clock()
        assert (found.updated_at - found.created_at).total_seconds() == pytest.approx(0.449)

    run(body)


def test_what_one_call_does_wrong_is_nobody_else_s_error(run: Run) -> None:
    async def body(store: Any) -> None:
        items = PersistStore(store)
        values = [{"n": float("nan")} if n % 10 == 3 else {"n": n} for n in range(50)]
        done = await asyncio.gather(
            *(items.aput(("docs",), f"{n:02}", value) for n, value in enumerate(values)), return_exceptions=True
        )
        assert [isinstance(result, InvalidValue) for result in done] == [n % 10 == 3 for n in range(50)]
        found = await items.asearch(("docs",), limit=100)
        assert sorted(item.value["n"] for item in found) == [n for n in range(50) if n % 10 != 3]

    run(body)


def test_a_cancelled_call_leaves_the_others_alone(run: Run) -> None:
    async def body(store: Any) -> None:
        items = PersistStore(store)
        for round in range(12):
            calls = [asyncio.ensure_future(items.aput((f"r{round}",), f"{n}", {"n": n})) for n in range(300)]
            for _ in range(round % 4):
                await asyncio.sleep(0)
            await asyncio.sleep(0.001 * (round % 5))
            for call in calls[::3]:
                call.cancel()
                call.cancel()
            results = await asyncio.gather(*calls, return_exceptions=True)
            found = {item.key for item in await items.asearch((f"r{round}",), limit=1000)}
            for number, result in enumerate(results):
                assert (number % 3 == 0) if isinstance(result, asyncio.CancelledError) else (f"{number}" in found)
            await asyncio.sleep(0)
            assert {item.key for item in await items.asearch((f"r{round}",), limit=1000)} == found

    run(body)


def test_who_is_cancelled_while_others_run_is_never_run(run: Run) -> None:
    async def body(store: Any) -> None:
        items, gate = PersistStore(store), asyncio.Event()
        inner = items._bridge.run_async

        async def run_async(function: Any, *, writes: bool) -> Any:
            await gate.wait()
            return await inner(function, writes=writes)

        items._bridge.run_async = run_async  # type: ignore[method-assign]  # it waits for the gate
        calls = [asyncio.ensure_future(items.aput(("docs",), f"{n}", {"n": n})) for n in range(300)]
        for _ in range(5):
            await asyncio.sleep(0)
        for call in calls[200::2]:
            call.cancel()
        await asyncio.sleep(0)
        assert all(call.cancelled() for call in calls[200::2])
        gate.set()
        await asyncio.gather(*calls, return_exceptions=True)
        found = {item.value["n"] for item in await items.asearch(("docs",), limit=1000)}
        assert found == set(range(300)) - set(range(200, 300, 2))

    run(body)


def test_a_loop_that_ends_in_the_middle_ends(database_url: str, face: str) -> None:
    async def leave(store: Any) -> None:
        items = PersistStore(store)
        waiting = [asyncio.ensure_future(items.aput(("docs",), f"{n}", {"n": n})) for n in range(1000)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not all(one.done() for one in waiting)

    with Store.open(database_url) as store:
        asyncio.run(leave(store))
        assert PersistStore(store).batch([]) == []


def test_inside_of_one_s_own_transaction_a_put_is_refused_at_once(run: Run) -> None:
    async def body(store: Any) -> None:
        items = PersistStore(store)
        if isinstance(store, Store):
            with store.begin(), pytest.raises(TransactionOpen):
                await items.aput(("docs",), "k", {})
        else:
            async with store.begin():
                with pytest.raises(TransactionOpen):
                    await items.aput(("docs",), "k", {})
        await items.aput(("docs",), "k", {"n": 1})
        assert await items.aget(("docs",), "k") is not None

    run(body)
