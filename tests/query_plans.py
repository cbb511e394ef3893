"""How a database goes about the statements that a store sends it, and how many rows it looks at."""

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from persist.db.dialects.postgres.pipelining import PipelinedConnection

Asked = tuple[str, Any]


def asked_statements(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """A list that grows by every SELECT, with its parameters, of every connection that is opened from now on."""
    asked: list[Asked] = []
    connect, execute = sqlite3.connect, psycopg.Cursor.execute

    def note(query: Any, params: Any = None) -> None:
        if str(query).lstrip().upper().startswith(("SELECT", "WITH")):
            asked.append((str(query), params))

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(note)  # with the values in it
        return connection

    def told(cursor: Any, query: Any, params: Any = None, **options: Any) -> Any:
        note(query, params)
        return execute(cursor, query, params, **options)

    monkeypatch.setattr(sqlite3, "connect", traced)
    monkeypatch.setattr(psycopg.Cursor, "execute", told)
    queue = PipelinedConnection.queue

    def queued(connection: PipelinedConnection, query: str, params: Any = ()) -> Any:
        note(query, params)
        return queue(connection, query, params)

    monkeypatch.setattr(PipelinedConnection, "queue", queued)
    return asked


def plan(url: str, asked: Asked) -> list[str]:
    """What the database does, a line a step: SQLite's own words; of Postgres the node, the table and the rows it looked at."""
    query, params = asked
    if url.startswith("sqlite"):
        lite = sqlite3.connect(url.removeprefix("sqlite:///"))
        try:
            return [str(row[3]) for row in lite.execute(f"EXPLAIN QUERY PLAN {query}")]
        finally:
            lite.close()
    with psycopg.connect(url, options="-c search_path=persist") as connection:
        explained = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}".encode(), params).fetchone()
        connection.rollback()  # a statement that writes has been run
    assert explained is not None
    found = explained[0] if isinstance(explained[0], list) else json.loads(explained[0])
    return [
        f"{node['Node Type']} {node['Relation Name']} {round(looked_at(node))}"
        for node in _nodes(found[0]["Plan"])
        if "Relation Name" in node
    ]


def looked_at(node: dict[str, Any]) -> float:
    """Rows of a table, those that a filter threw away included."""
    return float((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])


def rows_read(url: str, asked: Asked) -> int:
    """Of Postgres, over all tables."""
    return sum(int(step.rpartition(" ")[2]) for step in plan(url, asked))


def scans(url: str, asked: Asked) -> list[str]:
    """The steps of SQLite that look at a whole table, or sort all that they found."""
    steps = [step for step in plan(url, asked) if "VIRTUAL TABLE" not in step]
    return [step for step in steps if step.startswith("SCAN ") or step == "USE TEMP B-TREE FOR ORDER BY"]


def steps(url: str, asked: Asked) -> int:
    """Of SQLite, the instructions of its virtual machine that a statement takes, in tens."""
    told = 0

    def count() -> None:
        nonlocal told
        told += 1

    lite = sqlite3.connect(url.removeprefix("sqlite:///"))
    try:
        lite.set_progress_handler(count, 10)
        lite.execute(asked[0]).fetchall()
    finally:
        lite.close()
    return told


def steps_of_connections(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One number: the instructions, in tens, of SQLite's virtual machine on all connections that are opened from now on."""
    taken, connect = [0], sqlite3.connect

    def count() -> None:
        taken[0] += 1

    def counted(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_progress_handler(count, 10)
        return connection

    monkeypatch.setattr(sqlite3, "connect", counted)
    return taken


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _nodes(below)
