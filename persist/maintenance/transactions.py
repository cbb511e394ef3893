"""Transactions that move whole tables: without a time limit, on a connection of the store's own."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Table, select

from persist.db.dialects.backends import bulk_of
from persist.db.dialects.bulk import Bulk
from persist.db.statements.prepared import CompiledStatement, Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import UnsupportedEngine
from persist.schema.metadata import metadata
from persist.schema.revision import verify
from persist.store.store import Store

TABLES = tuple(metadata.sorted_tables)
"""Every table, parents first."""

_WHOLE = {table: Statement(select(table)) for table in TABLES}


class Session:
    """One open transaction of a store, and its database's way with whole tables."""

    def __init__(self, store: Store, work: UnitOfWork, bulk: Bulk) -> None:
        self.store, self.work, self.bulk = store, work, bulk

    @property
    def scopes(self) -> dict[str, str]:
        """Whose file this is, by scope."""
        return self.store.runtime.scopes

    def whole(self, table: Table) -> CompiledStatement:
        """The SELECT of every row."""
        return self.store.runtime.prepared[_WHOLE[table]]


class _LongWork(UnitOfWork):
    """A unit of work that is long on purpose: logs no warning about how long it held the lock."""

    def begin(self, cancelled: object = None) -> None:
        super().begin()
        self._began = 0.0


@contextmanager
def session(store: Store, *, writable: bool) -> Iterator[Session]:
    """A write transaction that commits at a clean end, or a snapshot. UnsupportedEngine on an engine of the caller's."""
    work = _LongWork(store.runtime, writable=writable)
    work.begin()
    try:
        connection = work.own_connection
        if connection is None:
            raise UnsupportedEngine("an engine of the caller's", "open the store by its URL to move whole tables.")
        dialect = store.runtime.dialect
        verify(connection, dialect)  # a reader may be of an older persist, and would leave out what it does not know
        bulk = bulk_of(dialect, connection.connection.driver_connection)
        try:
            yield Session(store, work, bulk)
        finally:
            bulk.leave()
    except BaseException as error:
        work.rollback()
        ours = store.runtime.translate(error)
        if ours is not error:
            raise ours from error
        raise
    if writable:
        work.commit()
    else:
        work.end_read()
