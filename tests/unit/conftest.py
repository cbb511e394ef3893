"""The fixture of the column types' tests."""

from collections.abc import Iterator

import pytest

from persist import Store
from tests.seeded_databases import with_file
from tests.unit.laboratory import Laboratory, specimens


@pytest.fixture
def laboratory(database_url: str, backend: str) -> Iterator[Laboratory]:
    with Store.open(with_file(database_url)) as store:
        dialect = store.runtime.dialect
        with dialect.connections.writer.connect() as connection:
            dialect.transactions.begin(connection, write=True)
            if backend == "postgres":  # a server's zone must not matter, nor a session's
                connection.exec_driver_sql("SET LOCAL TIME ZONE 'Asia/Kolkata'")
            specimens.create(connection)
            yield Laboratory(store, connection)
            connection.rollback()
