"""The stores that callers get: each is one use of a tenant's store, and closing it ends that use alone."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from persist.db.concurrency.weak_group import WeakGroup
from persist.db.group_commit.pinned_connection import PinnedConnection
from persist.db.transactions.async_transactions import AsyncTransactionPerVerb
from persist.db.transactions.repository import TransactionPerVerb
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.domains import Domains
from persist.errors import Closed
from persist.store.async_store import AsyncDomains, AsyncStore
from persist.store.event_log import StoreEventLog
from persist.store.store import Store
from persist.store.transaction import transaction_per_verb


class Use:
    """One use of a tenant's store: it lasts until it is ended, or until nothing that was reached by it is left."""

    __slots__ = ("__weakref__", "ended")

    def __init__(self) -> None:
        self.ended = False


class TenantStore(Store):
    """The store of a tenant. `close` gives it back: other uses go on, and its connections are kept for the next one."""

    _use: Use
    _give_back: Callable[[Use], Sequence[Store]]

    @classmethod
    def of(cls, store: Store, use: Use, give_back: Callable[[Use], Sequence[Store]]) -> "TenantStore":
        """A use of the store; `give_back` is called at its end, and returns stores to close."""
        lent = object.__new__(cls)
        vars(lent).update({name: value for name, value in vars(store).items() if name not in vars(Domains)})
        lent._use, lent._give_back = use, give_back
        lent._work, lent._recorders = _work_of(store.runtime, use), _Recorders(use)
        return lent

    def close(self) -> None:
        """Flush the recorders of this use without finishing them, and give the store back. A second call does nothing.

        Whatever is called on it afterwards raises Closed. A transaction that is still open goes on until its end.
        """
        if self._use.ended:
            return
        self._use.ended = True
        if not self.runtime.forked:
            for recorder in self._recorders.members():
                recorder.close()
        self.runtime = closed_copy(self.runtime)
        self.pinned, self._event_log = PinnedConnection(self.runtime), StoreEventLog(self.runtime, self.timer)
        for superfluous in self._give_back(self._use):
            superfluous.close()

    def __del__(self) -> None:
        """Say nothing: a use that was dropped has ended, and the store is kept for the next one."""


def _work_of(runtime: Runtime, use: Use) -> TransactionPerVerb:
    """What runs each verb of one use in a transaction: it keeps the use alive, and refuses once that has ended."""
    every = transaction_per_verb(runtime)

    def run(verb: Callable[[UnitOfWork], Any], writes: bool) -> Any:
        if use.ended:
            raise Closed("store")
        return every.run(verb, writes)

    return TransactionPerVerb(run, one_writer=runtime.dialect.one_writer)


class AsyncTenantStore(AsyncStore):
    """See TenantStore: the asynchronous store of a tenant."""

    _use: Use
    _give_back: Callable[[Use], Sequence[AsyncStore]]

    @classmethod
    def of(cls, store: AsyncStore, use: Use, give_back: Callable[[Use], Sequence[AsyncStore]]) -> "AsyncTenantStore":
        """A use of the store; `give_back` is called at its end, and returns stores to close."""
        lent = object.__new__(cls)
        vars(lent).update({name: value for name, value in vars(store).items() if name not in vars(AsyncDomains)})
        lent._use, lent._give_back = use, give_back
        lent._work = AsyncTransactionPerVerb(lent._run_verb, one_writer=store._runtime.dialect.one_writer)
        lent._recorders = _Recorders(use)
        return lent

    async def close(self) -> None:
        """See TenantStore.close."""
        if self._use.ended:
            return
        self._use.ended = True
        if not self._runtime.forked:
            for recorder in self._recorders.members():
                await recorder.close()
        self._runtime = closed_copy(self._runtime)
        self._store = TenantStore.of(self._store, self._use, lambda use: ())
        self._store.runtime = self._runtime
        for superfluous in self._give_back(self._use):
            await superfluous.close()


class _Recorders(WeakGroup[Any]):
    """The recorders of one use, which lasts at least as long as they do, unless it is ended."""

    def __init__(self, use: Use) -> None:
        super().__init__()
        self._use = use

    def add(self, member: Any) -> None:
        super().add(member)
        vars(member)["_use"] = self._use


def closed_copy(runtime: Runtime) -> Runtime:
    """What a store that was given back has instead of its runtime: it refuses every use."""
    closed = copy(runtime)
    closed.closed = True
    return closed
