"""One call of an adapter: one verb in a transaction of its own, over a Store or an AsyncStore."""

from collections.abc import Callable
from typing import TypeVar

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.integrations.pydantic_ai.errors import InvalidInput
from persist.integrations.store_bridge import StoreBridge
from persist.store.async_store import AsyncStore
from persist.store.store import Store

T = TypeVar("T")


class Calls:
    """Runs the verbs of the adapter `name`. A cancelled call is done either completely or not at all."""

    def __init__(self, name: str, store: Store | AsyncStore) -> None:
        if not isinstance(store, Store | AsyncStore):
            raise InvalidInput("store", f"expected a Store or an AsyncStore, got {type(store).__name__}.")
        self._name, self._bridge = name, StoreBridge(store)
        self._runtime = (store if isinstance(store, Store) else store._store).runtime

    async def read(self, verb: Callable[[UnitOfWork], T]) -> T:
        """Run a verb that only reads."""
        return await self._call(verb, writes=False)

    async def write(self, verb: Callable[[UnitOfWork], T]) -> T:
        """Run a verb that writes."""
        return await self._call(verb, writes=True)

    async def _call(self, verb: Callable[[UnitOfWork], T], *, writes: bool) -> T:
        if writes or self._runtime.one_connection:
            self._runtime.refuse_inside_transaction(f"a call of {self._name}")
        with InvalidInput.raised():
            return await self._bridge.call_async(verb, writes=writes)
