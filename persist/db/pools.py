"""How many transactions at a time a pool has connections for."""

from sqlalchemy import AssertionPool, Pool, QueuePool, SingletonThreadPool, StaticPool

from persist.errors import InvalidValue

MOST = 25
"""Transactions of a kind at a time: what our own pools hold."""


def width(pool: Pool) -> int:
    """Connections that a pool gives out at the same time, at most as many as are of use."""
    if isinstance(pool, StaticPool | AssertionPool):
        return 1
    if isinstance(pool, QueuePool) and pool._max_overflow >= 0:
        return min(2 * MOST + 1, pool.size() + pool._max_overflow)
    return 2 * MOST + 1


def check_for_recorders(pool: Pool) -> None:
    """InvalidValue where a recorder would be given the very connection that a transaction is on, and commit or end it."""
    if isinstance(pool, StaticPool | AssertionPool | SingletonThreadPool):
        raise InvalidValue("engine", f"its {type(pool).__name__} has no connection for a recorder alone, as a QueuePool has.")


def shares(connections: int, *, one_writer: bool) -> tuple[int, int]:
    """Writers and readers that may be at work at a time, so that a reader inside of each writer still has its turn.

    One connection is left to recorders, which keep it, where there are more than two.
    """
    free = connections - 1 if connections > 2 else connections
    writers = 1 if one_writer else max(1, min(MOST, free // 2))
    return writers, max(1, min(MOST, free - writers))
