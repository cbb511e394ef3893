"""The last writes of a store that is closed, and the end of a store that is dropped unclosed."""

import logging
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from persist.db.concurrency.fork_count import PROCESS
from persist.db.dialects.connections import Connections
from persist.db.transactions.runtime import Runtime
from persist.errors import PersistError
from persist.lazy_imports import lazy_module
from persist.store.transaction import TransactionBlock, work_of

if TYPE_CHECKING:
    from persist.conversations.storage import progressions as folding
else:
    folding = lazy_module("persist.conversations.storage.progressions")

log = logging.getLogger("persist")


def fold_progressions(runtime: Runtime, begin: Callable[[], TransactionBlock]) -> None:
    """Update the published arrays of progressions that the store appended to; their members are durable in any case."""
    if not any(runtime.own_writes.values()) or not folding.has_lagging(runtime):
        return
    try:
        with begin() as tx:
            folding.fold_lagging(work_of(tx))
    except PersistError as error:
        log.warning("progressions are left unfolded: %s", error)


def close_when_dropped(runtime: Runtime) -> "weakref.finalize[Any, Any]":
    """Close a store's own connections once neither store nor transaction is referenced; `detach` it once they are closed.

    Its pools would keep themselves: each connection that is lent to the store is in a registry together with its pool.
    """
    finalizer = weakref.finalize(runtime, _close, runtime.connections if runtime.owns_engine else None, runtime.forks)
    finalizer.atexit = False
    return finalizer


def _close(connections: Connections | None, forks: int) -> None:
    if connections is not None and forks == PROCESS.forks:
        connections.dispose()


def say_dropped(store: object, runtime: Runtime) -> bool:
    """Warn of a store with connections of its own that is freed without having been closed; whether it is one."""
    dropped = runtime.owns_engine and not runtime.closed and not runtime.forked
    if dropped:
        warnings.warn(f"{store!r} was not closed", ResourceWarning, stacklevel=3)
    return dropped
