"""Transactions over a Store or an AsyncStore for adapters that have both synchronous methods and coroutines."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import InvalidValue
from persist.store.async_store import AsyncStore
from persist.store.store import Store
from persist.store.transaction import Transaction, TransactionBlock, transact_with_retries, transaction_per_verb

T = TypeVar("T")


class StoreBridge:
    """Runs functions in a transaction: `run_sync` in this thread, `run_async` on a worker thread without blocking the loop.

    Both run the same synchronous function on the sync store, so neither waits for an event loop. `call_sync` and `call_async`
    run one verb, given as a function of the unit of work, and so may wait for fewer answers of the database.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        if not isinstance(store, Store | AsyncStore):
            raise InvalidValue("store", f"expected a Store or an AsyncStore, got {type(store).__name__}.")
        self._async = store if isinstance(store, AsyncStore) else None
        self._store = store._store if isinstance(store, AsyncStore) else store

    def run_sync(self, function: Callable[[Transaction], T], *, writes: bool) -> T:
        """Run in this thread. InvalidStateError over an AsyncStore if an event loop runs in this thread: it would be blocked."""
        self._check_loop()
        return self._run(function, writes)

    def call_sync(self, verb: Callable[[UnitOfWork], T], *, writes: bool) -> T:
        """Run one verb in this thread. InvalidStateError as of `run_sync`."""
        self._check_loop()
        return self._call(verb, writes)

    async def run_async(self, function: Callable[[Transaction], T], *, writes: bool) -> T:
        """Run on a worker thread. If cancelled, the transaction ends first, so it is done either completely or not at all."""
        return await self._in_worker(lambda: self._run(function, writes), writes)

    async def call_async(self, verb: Callable[[UnitOfWork], T], *, writes: bool) -> T:
        """Run one verb on a worker thread. Cancelled as `run_async` is."""
        return await self._in_worker(lambda: self._call(verb, writes), writes)

    def refuse_inside_transaction(self, *, writes: bool) -> None:
        """Raise TransactionOpen if a call would wait for the end of the caller's own transaction."""
        if writes or self._store.runtime.one_connection:
            self._store.runtime.refuse_inside_transaction("a call outside of the transaction")

    def _check_loop(self) -> None:
        if self._async is not None and _in_loop():
            raise asyncio.InvalidStateError(
                "A synchronous call over an AsyncStore would block its event loop: await the method of the same name with an a "
                "before it, or call this one from another thread."
            )

    async def _in_worker(self, call: Callable[[], T], writes: bool) -> T:
        if self._async is None:
            return await _finish_despite_cancellation(call)
        return await self._async._worker_pool.whole(call, writable=writes)

    def _call(self, verb: Callable[[UnitOfWork], T], writes: bool) -> T:
        result: T = transaction_per_verb(self._store.runtime).run(verb, writes)
        return result

    def _run(self, function: Callable[[Transaction], T], writes: bool) -> T:
        runtime = self._store.runtime
        if writes:
            return transact_with_retries(runtime, lambda: TransactionBlock(runtime, writable=True), function)
        with TransactionBlock(runtime, writable=False) as tx:
            return function(tx)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _finish_despite_cancellation(function: Callable[[], T]) -> T:
    running = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
