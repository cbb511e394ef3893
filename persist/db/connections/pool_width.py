"""How many concurrent transactions a pool has connections for."""

from sqlalchemy import AssertionPool, Pool, QueuePool, SingletonThreadPool, StaticPool

from persist.db.sqlalchemy_private import max_connections
from persist.errors import InvalidValue

MAX = 25
"""The maximum number of concurrent transactions of a kind (writing or reading), for which persist's own pools are sized."""


def width(pool: Pool) -> int:
    """How many connections a pool hands out at the same time, counted up to 51, the most that a store uses."""
    if isinstance(pool, StaticPool | AssertionPool):
        return 1
    limit = max_connections(pool) if isinstance(pool, QueuePool) else None
    return 2 * MAX + 1 if limit is None else min(2 * MAX + 1, limit)


def check_for_recorders(pool: Pool) -> None:
    """Raises InvalidValue where a recorder would be given the very connection that a transaction is on, and commit or end it."""
    if isinstance(pool, StaticPool | AssertionPool | SingletonThreadPool):
        raise InvalidValue("engine", f"its {type(pool).__name__} has no connection for a recorder alone, as a QueuePool has.")


def shares(connections: int, *, one_writer: bool) -> tuple[int, int]:
    """The numbers of concurrent writers and readers, chosen so that every writer can open a reader inside of its transaction.

    With more than two connections, one is reserved for recorders, which keep theirs.
    """
    free = connections - 1 if connections > 2 else connections
    writers = 1 if one_writer else max(1, min(MAX, free // 2))
    return writers, max(1, min(MAX, free - writers))
