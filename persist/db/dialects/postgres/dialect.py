"""Postgres through psycopg 3: a separate schema, READ COMMITTED writes, snapshot reads, no session state."""

from dataclasses import replace
from typing import Any

from sqlalchemy import URL, Engine, create_engine

from persist.db.dialects.connections import QUIET
from persist.db.dialects.errors import Errors
from persist.db.dialects.interface import Dialect
from persist.db.dialects.postgres.catalog import PostgresTables
from persist.db.dialects.postgres.connections import PostgresConnections, connection_timeouts
from persist.db.dialects.postgres.errors import retryable, tells_rollback, translation
from persist.db.dialects.postgres.operations import PostgresTransactions
from persist.db.dialects.postgres.raw_writes import REREADER
from persist.db.dialects.postgres.shared_pool import NO_SCHEMA, PostgresEventLog, SharedEventLog, SharedPool
from persist.db.dialects.postgres.urls import driver
from persist.db.values.json import from_jsonb


def postgres_dialect(url: URL, schema: str, *, pooler: str | None = None, read_only: bool = False) -> Dialect:
    """Create the dialect of a Postgres database, reached directly or through a transaction-mode pooler."""
    psycopg, pooled = driver(), pooler == "transaction"
    engine = _engine(url)
    connections = PostgresConnections(psycopg, engine, schema, owned=True, pooled=pooled)
    return _dialect(psycopg, connections, PostgresEventLog(engine, schema, pooled=pooled), schema, read_only=read_only)


def _engine(url: URL) -> Engine:
    url = url.set(drivername="postgresql+psycopg")
    # persist encodes statements by itself, whatever encoding the URL or the environment asks for
    arguments = {**connection_timeouts(url), "client_encoding": "utf8"}
    # without asking for the types of an extension that no column of persist has
    pool = {"pool_pre_ping": True, "pool_size": 5, "max_overflow": 24}
    return create_engine(url, **pool, **QUIET, connect_args=arguments, use_native_hstore=False)


def shared_pool(url: URL, *, pooler: str | None = None, listen_url: str | None = None) -> SharedPool:
    """Create the pool of connections for the stores of many schemas of a database, without connecting."""
    psycopg, pooled = driver(), pooler == "transaction"
    engine = _engine(url)
    connections = PostgresConnections(psycopg, engine, NO_SCHEMA, owned=True, pooled=pooled)
    return SharedPool(psycopg, _dialect(psycopg, connections, PostgresEventLog(engine, NO_SCHEMA, pooled=pooled), NO_SCHEMA))


def of_shared_pool(pool: SharedPool, schema: str) -> Dialect:
    """Create the dialect of one schema's store. What does not depend on the schema is the pool's."""
    connections = pool.of_schema(schema)
    event_log = SharedEventLog(pool, schema)
    return replace(
        pool.dialect,
        schema=schema,
        one_of_many=True,
        connections=connections,
        transactions=PostgresTransactions(pool.psycopg, connections, event_log),
        event_log=event_log,
        tables=PostgresTables(pool.engine.url, schema),
    )


def of_engine(engine: Engine, schema: str) -> Dialect:
    """Create the dialect for a caller's engine, whose pool and settings stay as they are."""
    import psycopg

    connections = PostgresConnections(psycopg, engine, schema, owned=False)
    return _dialect(psycopg, connections, PostgresEventLog(engine, schema, pooled=False), schema)


def _dialect(
    psycopg: Any, connections: PostgresConnections, event_log: PostgresEventLog, schema: str, *, read_only: bool = False
) -> Dialect:
    engine = connections.engine
    translate = translation(psycopg, engine.url.database or "the database", connections.distrust)
    return Dialect(
        name="postgresql",
        sqlalchemy_dialect=type(engine.dialect),
        schema=schema,
        read_only=read_only,
        one_file=False,
        one_writer=False,
        batches_rows=True,
        pipelines=True,
        autocommits_single_statement=True,
        rereader=REREADER,
        to_plain_json=from_jsonb,
        connections=connections,
        transactions=PostgresTransactions(psycopg, connections, event_log),
        errors=Errors("postgresql", translate, retryable, tells_rollback),
        event_log=event_log,
        tables=PostgresTables(engine.url, schema),
    )
