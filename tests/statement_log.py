"""Every statement that any connection runs, as the drivers are told it."""

import sqlite3
from typing import Any

import psycopg
import pytest

from persist.db.dialects.postgres.pipelining import PipelinedConnection

_PING = ";"
"""What the pool asks of a connection that has rested: on a slow machine now and then one more."""


def seen_statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows by every statement of every connection that is opened from now on, on whatever thread it runs."""
    seen: list[str] = []
    connect, execute, executemany = sqlite3.connect, psycopg.Cursor.execute, psycopg.Cursor.executemany

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(seen.append)
        return connection

    def told(cursor: Any, query: Any, *args: Any, **options: Any) -> Any:
        if str(query) != _PING:
            seen.append(str(query))
        return execute(cursor, query, *args, **options)

    def told_once(cursor: Any, query: Any, *args: Any, **options: Any) -> Any:
        seen.append(str(query))
        return executemany(cursor, query, *args, **options)

    monkeypatch.setattr(sqlite3, "connect", traced)
    monkeypatch.setattr(psycopg.Cursor, "execute", told)
    monkeypatch.setattr(psycopg.Cursor, "executemany", told_once)
    queue, queue_many = PipelinedConnection.queue, PipelinedConnection.executemany

    def queued(connection: PipelinedConnection, query: str, *args: Any) -> Any:
        seen.append(query)
        return queue(connection, query, *args)

    def queued_once(connection: PipelinedConnection, query: str, *args: Any) -> Any:
        seen.append(query)
        return queue_many(connection, query, *args)

    monkeypatch.setattr(PipelinedConnection, "queue", queued)
    monkeypatch.setattr(PipelinedConnection, "executemany", queued_once)
    return seen
