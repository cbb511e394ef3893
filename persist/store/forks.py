"""Keeps a forked child from touching the connections of its parent's stores."""

import weakref
from typing import Any

from persist.db.concurrency.fork_count import in_each_child
from persist.db.group_commit.pinned_connection import PinnedConnection
from persist.db.transactions.runtime import Runtime

_open: "weakref.WeakKeyDictionary[Runtime, PinnedConnection]" = weakref.WeakKeyDictionary()
_inherited: list[Any] = []


def remember(runtime: Runtime, held: PinnedConnection) -> None:
    """Register a store that was opened."""
    _open[runtime] = held


def forget(runtime: Runtime) -> None:
    """Unregister a store that was closed."""
    _open.pop(runtime, None)


def _after_fork_in_child() -> None:
    """Drop the parent's connections in the child without closing them; references keep the garbage collector from doing so."""
    for runtime, held in list(_open.items()):
        dialect = runtime.dialect
        pools = [engine.pool for engine in dialect.connections.engines]
        _inherited.append((held, dialect, pools, runtime.watchers.members()))
        if runtime.owns_engine:
            dialect.connections.abandon()
    _open.clear()


in_each_child(_after_fork_in_child)
