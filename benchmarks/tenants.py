"""A thousand tenants in one process, on Postgres.

The tenants' schemas hold the tables of chat alone, as the process under test cannot tell. Each tenant's store is opened once,
then writes a session with a message, records an answer, and reads both. Memory is what the process has resident above the same
work for one tenant; connections are those that the server counts at the end.
"""

import gc
import os
from collections.abc import Iterator

import psycopg
from sqlalchemy import Table

from benchmarks.measure import Row, interleaved, middle
from benchmarks.place import Place
from persist import Store, Tenants
from persist.db.dialects.backends import dialect_for
from persist.db.statements.schema_version import HEAD, version_table
from persist.schema.metadata import metadata
from persist.schema.opening import table_ddl
from persist.settings import current_settings

_ROUNDS = 300
_FIRST = "tenant_0000"


def rows(place: Place) -> Iterator[Row]:
    """Memory after opening, memory after work, connections, and the time to open."""
    assert place.postgres is not None
    names = [f"tenant_{number:04}" for number in range(100 if place.quick else 1000)]
    _make(place.postgres, names)
    with Tenants(place.postgres, max_open=len(names)) as tenants:
        for _ in range(5):
            with tenants.open(_FIRST) as store:
                _work(store)
        base = _resident()
        for name in names:
            tenants.open(name).close()
        many = f"{len(names):,} tenants"
        yield Row(f"memory for the open stores of {many}", _resident() - base, 50, "above that of one", unit=" MiB")
        for name in names:
            with tenants.open(name) as store:
                _work(store)
        detail = "above that of one; each has written, recorded and read"
        yield Row(f"memory for {many} at work", _resident() - base, 50, detail, unit=" MiB")
        with psycopg.connect(place.postgres) as admin:
            query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            found = admin.execute(query).fetchone()
        yield Row(f"connections of {many}", float(found[0]) if found else 0.0, 29, "the pool's limit is the goal", unit="")
    yield from _opening(place.postgres, names)


def _opening(url: str, names: list[str]) -> Iterator[Row]:
    with Tenants(url, max_open=1) as tenants, Tenants(url) as keeping:
        numbers = iter(range(10 * _ROUNDS))
        keeping.open(_FIRST).close()

        def closed() -> None:
            tenants.open(names[next(numbers) % len(names)]).close()

        seconds = interleaved({"closed": closed, "open": lambda: keeping.open(_FIRST).close()}, rounds=_ROUNDS)
        detail = "median; one round trip, and the store before it is closed"
        yield Row("opening a known tenant whose store is closed", middle(seconds["closed"]) * 1e3, 2, detail, unit=" ms")
        yield Row("opening a tenant whose store is open", middle(seconds["open"]) * 1e3, 2, "median", unit=" ms")


def _work(store: Store) -> None:
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="bench", model={})
        tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "hi"}])
    with store.record(session.id) as recorder:
        recorder.feed_many([{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "hello"}])
    store.chat.messages.list(session.id)
    store.chat.sessions.list()


def _resident() -> float:
    """Resident memory in MiB, after a collection. Linux alone has this file."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def _make(url: str, names: list[str]) -> None:
    """Schemas with the tables of chat and those that they refer to, at this code's revision."""
    dialect = dialect_for(url, current_settings(), schema=_FIRST)
    statements = [f"CREATE SCHEMA {_FIRST}"]
    for table in (version_table, *_tables()):
        statements += table_ddl(dialect, table)
    statements += [
        f"INSERT INTO {_FIRST}.{version_table.name} VALUES ('{HEAD}')",
        f"INSERT INTO {_FIRST}._meta VALUES ('schema_version', '{HEAD}')",
    ]
    dialect.connections.dispose()
    made = ";".join(statements)
    with psycopg.connect(url, autocommit=True) as admin:
        for name in names:
            admin.execute(made.replace(_FIRST, name).encode(), prepare=False)


def _tables() -> list[Table]:
    wanted = {table for table in metadata.sorted_tables if table.name.startswith("chat_") or table.name == "_meta"}
    for table in reversed(metadata.sorted_tables):
        if table in wanted:
            wanted |= {key.column.table for key in table.foreign_keys}
    return [table for table in metadata.sorted_tables if table in wanted]
