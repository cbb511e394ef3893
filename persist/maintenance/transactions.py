"""Transactions that read or write whole tables, without a time limit, on the store's own connection."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Table, func, select

from persist.db.dialects.backends import bulk_of
from persist.db.dialects.bulk import Bulk
from persist.db.statements.prepared import CompiledStatement, Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.transactions.verb_frame import Verb
from persist.errors import UnsupportedEngine
from persist.schema.metadata import metadata
from persist.schema.revision import verify
from persist.store.store import Store
from persist.store.transaction import work_of


@contextmanager
def looking(store: Store, verb: str) -> Iterator[UnitOfWork]:
    """Open a read snapshot. `verb`: the name of the function that reads, for error messages."""
    with store.read() as tx, Verb(work_of(tx), verb, writes=False):
        yield work_of(tx)


@contextmanager
def translated(store: Store) -> Iterator[None]:
    """Translate driver errors into PersistErrors, for code that opens its own connection."""
    try:
        yield
    except Exception as error:
        ours = store.runtime.translate(error)
        if ours is error:
            raise
        raise ours from error


TABLES = tuple(metadata.sorted_tables)
"""Every table, parents first."""

_WHOLE = {table: Statement(select(table)) for table in TABLES}
_COUNT = {table: Statement(select(func.count()).select_from(table)) for table in TABLES}


class Session:
    """One open transaction of a store, with the bulk operations of its dialect."""

    def __init__(self, store: Store, work: UnitOfWork, bulk: Bulk) -> None:
        self.store, self.work, self.bulk = store, work, bulk

    @property
    def scopes(self) -> dict[str, str]:
        """The ids of the file's owners, by scope."""
        return self.store.runtime.scopes

    def whole(self, table: Table) -> CompiledStatement:
        """Return the compiled SELECT of all rows of a table."""
        return self.store.runtime.prepared[_WHOLE[table]]


def rows_in(session: Session, table: Table) -> int:
    """How many rows a table has."""
    row = session.work.row(_COUNT[table])
    assert row is not None
    return int(row[0])


@contextmanager
def session(store: Store, *, writable: bool, checked: bool = True) -> Iterator[Session]:
    """Open a write transaction, committed unless an error is raised, or a snapshot.

    `checked` False: the caller knows that the tables have this revision. Raises UnsupportedEngine on the caller's engine.
    """
    work = UnitOfWork(store.runtime, writable=writable)
    work.transaction.may_be_long = True
    work.begin()
    try:
        connection = work.own_connection
        if connection is None:
            raise UnsupportedEngine("an engine of the caller's", "open the store by its URL to move whole tables.")
        dialect = store.runtime.dialect
        if checked:
            verify(connection, dialect)  # an older persist would leave out tables and columns of a newer schema
        bulk = bulk_of(dialect, dialect.transactions.driver_of(connection))
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
