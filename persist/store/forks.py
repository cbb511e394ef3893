"""Keeps a forked child from touching the connections of its parent's stores."""

from typing import Any

from persist.db.concurrency.fork_count import in_each_child
from persist.db.concurrency.weak_group import WeakGroup
from persist.db.transactions.runtime import Runtime

_open: WeakGroup[Runtime] = WeakGroup()
_inherited: list[Any] = []


def remember(runtime: Runtime) -> None:
    """Register a store that was opened. What is registered keeps no store that nobody has any more."""
    _open.add(runtime)


def forget(runtime: Runtime) -> None:
    """Unregister a store that was closed."""
    _open.discard(runtime)


def _after_fork_in_child() -> None:
    """Drop the parent's connections in the child without closing them; references keep the garbage collector from doing so."""
    for runtime in _open.members():
        dialect = runtime.dialect
        pools = [engine.pool for engine in dialect.connections.engines]
        _inherited.append((runtime.pinned, dialect, pools, runtime.watchers.members()))
        if runtime.owns_engine:
            dialect.connections.abandon([pinned.at_rest() for pinned in runtime.recording.members()])
        _open.discard(runtime)


in_each_child(_after_fork_in_child)
