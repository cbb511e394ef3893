"""A table that says on which server each tenant is, in a database of the operator's choosing."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import Column, Connection, MetaData, Table, Text, delete, insert, select, update
from sqlalchemy.schema import CreateSchema

from persist.db.dialects.from_url import dialect_for
from persist.db.schema.base import SCHEMA_TOKEN
from persist.errors import Conflict, PersistError
from persist.settings import Settings

_SCHEMA = "persist_tenants"

_map = Table(
    "persist_tenants",
    MetaData(schema=SCHEMA_TOKEN),
    Column("name", Text, primary_key=True),
    Column("server", Text, nullable=False),
    Column("status", Text, nullable=False),
)


class Status(StrEnum):
    """How far a tenant's creation or removal has come. Only one that is ready can be opened."""

    CREATING = "being created"
    READY = "ready"
    DROPPING = "being dropped"


class Entry(NamedTuple):
    """A row of the map."""

    name: str
    server: str
    status: Status


class TenantMap:
    """The map in the database at `url`, made when it is first used. Every call is one transaction."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._dialect = dialect_for(url, settings, schema=_SCHEMA)
        self._made = False

    def find(self, name: str) -> Entry | None:
        """The entry of a tenant, or None."""
        with self._transaction() as connection:
            row = connection.execute(select(_map).where(_map.c.name == name)).first()
        return None if row is None else _entry(row)

    def add(self, name: str, server: str) -> Entry:
        """Note a tenant whose creation begins, and return its entry: the present one if there is one."""
        try:
            with self._transaction() as connection:
                connection.execute(insert(_map).values(name=name, server=server, status=Status.CREATING.value))
        except Conflict:
            found = self.find(name)
            if found is not None:
                return found
            raise
        return Entry(name, server, Status.CREATING)

    def change(self, name: str, was: Status, becomes: Status | None) -> bool:
        """Set the status of a tenant, or remove its entry (None). False: its status was not `was`, and nothing was changed."""
        where = (_map.c.name == name) & (_map.c.status == was.value)
        with self._transaction() as connection:
            if becomes is None:
                return connection.execute(delete(_map).where(where)).rowcount == 1
            return connection.execute(update(_map).where(where).values(status=becomes.value)).rowcount == 1

    def assign(self, name: str, server: str) -> bool:
        """Say that a ready tenant is on that server from now on. False: there is no such tenant."""
        with self._transaction() as connection:
            where = (_map.c.name == name) & (_map.c.status == Status.READY.value)
            return connection.execute(update(_map).where(where).values(server=server)).rowcount == 1

    def page(self, after: str, limit: int) -> list[Entry]:
        """At most `limit` tenants that are ready, sorted by name, from the first one greater than `after`."""
        chosen = (_map.c.name > after) & (_map.c.status == Status.READY.value)
        with self._transaction() as connection:
            return [_entry(row) for row in connection.execute(select(_map).where(chosen).order_by(_map.c.name).limit(limit))]

    def close(self) -> None:
        """Close the connections."""
        self._dialect.connections.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        dialect = self._dialect
        try:
            if not self._made:
                self._make()
            with dialect.connections.writer.begin() as connection:
                yield connection
        except PersistError:
            raise
        except Exception as error:
            raise (dialect.errors.classify(error) or error) from error

    def _make(self) -> None:
        for attempt in (1, 2):
            try:
                with self._dialect.connections.writer.begin() as connection:
                    if self._dialect.schema is not None:
                        connection.execute(CreateSchema(_SCHEMA, if_not_exists=True))
                    _map.metadata.create_all(connection)
                break
            except Exception:
                if attempt == 2:  # otherwise another process has made them at the same time
                    raise
        self._made = True


def _entry(row: Sequence[str]) -> Entry:
    return Entry(row[0], row[1], Status(row[2]))
