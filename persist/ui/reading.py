"""How a page reads: one snapshot on a worker thread, a few at a time, for no longer than a page may take."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import PersistError, StoreBusy
from persist.integrations.store_bridge import StoreBridge
from persist.store.async_store import AsyncStore
from persist.store.store import Store
from persist.store.transaction import Transaction, TransactionBlock, transact_with_retries, work_of

T = TypeVar("T")
AT_ONCE = 8
"""How many pages are read at a time; others wait."""
SECONDS = 10.0
"""How long a page may read. Its statement is then interrupted."""


class Reader:
    """Runs functions in transactions of the store, whichever face it has, for callers on an event loop."""

    def __init__(self, store: Store | AsyncStore, seconds: float = SECONDS) -> None:
        self._bridge = StoreBridge(store)
        self.store = store._store if isinstance(store, AsyncStore) else store
        self._room = asyncio.Semaphore(AT_ONCE)
        self._seconds = seconds

    async def read(self, function: Callable[[Transaction], T]) -> T:
        """Run in a snapshot. Raises StoreBusy where it takes too long."""
        began: list[UnitOfWork] = []
        late: list[bool] = []

        def look(tx: Transaction) -> T:
            began.append(work_of(tx))
            return function(tx)

        def interrupt() -> None:
            late.append(True)
            for work in began:
                work.interrupt()

        async with self._room:
            timer = asyncio.get_running_loop().call_later(self._seconds, interrupt)
            try:
                return await self._bridge.run_async(look, writes=False)
            except PersistError as error:
                if late:
                    raise StoreBusy(self._seconds, "the page took too long to read") from error
                raise
            finally:
                timer.cancel()

    async def write(self, function: Callable[[Transaction], T], actor: str | None) -> T:
        """Run in a write transaction in which the actor acts, and again where `Store.transact` would."""
        runtime = self.store.runtime

        def write() -> T:
            return transact_with_retries(runtime, lambda: TransactionBlock(runtime, writable=True, actor=actor), function)

        return await self._bridge.in_worker(write, writes=True)
