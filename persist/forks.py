"""What a forked child may not touch: the connections of its parent's stores."""

import weakref
from typing import Any

from persist.db.held import HeldConnection
from persist.db.process import in_each_child
from persist.db.runtime import Runtime

_open: "weakref.WeakKeyDictionary[Runtime, HeldConnection]" = weakref.WeakKeyDictionary()
_inherited: list[Any] = []


def remember(runtime: Runtime, held: HeldConnection) -> None:
    """A store was opened."""
    _open[runtime] = held


def forget(runtime: Runtime) -> None:
    """It was closed."""
    _open.pop(runtime, None)


def _after_fork_in_child() -> None:
    """Connections of the parent are dropped in the child without closing them, and kept alive so that nobody does."""
    for runtime, held in list(_open.items()):
        dialect = runtime.dialect
        pools = [engine.pool for engine in dialect.engines]
        _inherited.append((held, dialect, pools, runtime.watchers.members()))
        if runtime.owns_engine:
            dialect.abandon()
    _open.clear()


in_each_child(_after_fork_in_child)
