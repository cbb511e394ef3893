"""How many transactions a pool has connections for, and how writers and readers share them."""

import sqlite3
from typing import Any

from sqlalchemy import AssertionPool, NullPool, Pool, QueuePool, SingletonThreadPool, StaticPool

from persist.db.connections import MAX, shares, width
from tests.cases import each


def connect() -> Any:
    return sqlite3.connect(":memory:")


@each(
    ("pool", "connections"),
    [
        (QueuePool(connect), 15),
        (QueuePool(connect, pool_size=2, max_overflow=1), 3),
        (QueuePool(connect, pool_size=1, max_overflow=0), 1),
        (QueuePool(connect, pool_size=500), 2 * MAX + 1),
        (QueuePool(connect, max_overflow=-1), 2 * MAX + 1),
        (NullPool(connect), 2 * MAX + 1),
        (SingletonThreadPool(connect), 2 * MAX + 1),
        (StaticPool(connect), 1),
        (AssertionPool(connect), 1),
    ],
)
def test_a_pool_is_as_wide_as_it_says(pool: Pool, connections: int) -> None:
    assert width(pool) == connections


@each("one_writer", [True, False])
def test_every_writer_can_read_meanwhile(one_writer: bool) -> None:
    for connections in range(2, 2 * MAX + 2):
        writers, readers = shares(connections, one_writer=one_writer)
        assert 1 <= writers <= MAX
        assert 1 <= readers <= MAX
        assert writers + readers <= connections
    assert shares(2 * MAX + 1, one_writer=False) == (MAX, MAX)
    assert shares(1, one_writer=one_writer)[0] == 1
