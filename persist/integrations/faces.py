"""A transaction for a caller that may be synchronous or a coroutine, over a store of either face."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from persist.aio import AsyncStore
from persist.store import Store
from persist.transaction import Transaction, TransactionBlock, replayed

T = TypeVar("T")


class Faces:
    """Runs functions of a transaction: `now` in this thread, `later` on a worker thread while the event loop goes on.

    There is no bridge from one face to the other: both run the same synchronous function, and neither waits for a loop.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self._async = store if isinstance(store, AsyncStore) else None
        self._store = store._store if isinstance(store, AsyncStore) else store

    def now(self, function: Callable[[Transaction], T], *, writes: bool) -> T:
        """Its result. Of an AsyncStore only where no event loop runs in this thread, which would stand still meanwhile."""
        if self._async is not None and _in_loop():
            raise asyncio.InvalidStateError(
                "A synchronous call over an AsyncStore would block its event loop: await the method of the same name with an a "
                "before it, or call this one from another thread."
            )
        return self._run(function, writes)

    async def later(self, function: Callable[[Transaction], T], *, writes: bool) -> T:
        """Its result. Cancelled meanwhile: the transaction ends first, so that nothing is half there."""
        if self._async is None:
            return await _to_its_end(lambda: self._run(function, writes))
        return await self._async._hops.whole(lambda: self._run(function, writes), writable=writes)

    def _run(self, function: Callable[[Transaction], T], writes: bool) -> T:
        runtime = self._store.runtime
        if writes:
            return replayed(runtime, lambda: TransactionBlock(runtime, writable=True), function)
        with TransactionBlock(runtime, writable=False) as tx:
            return function(tx)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _to_its_end(function: Callable[[], T]) -> T:
    running = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
