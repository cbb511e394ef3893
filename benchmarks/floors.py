"""What a careful programmer writes by hand against the driver: the floors that everything is measured against."""

import sqlite3
import time
from pathlib import Path
from typing import Any

import orjson
import psycopg

PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=5000", "foreign_keys=ON")


def connect(path: Path | str) -> sqlite3.Connection:
    """A raw connection with the same durability as ours."""
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def now_ms() -> int:
    """As stored instants are."""
    return int(time.time() * 1000)


class InPlaceRewrite:
    """One row holds the whole part; every chunk rewrites it and commits."""

    def __init__(self, path: Path) -> None:
        self.run = connect(path).execute
        self.run("CREATE TABLE chat_parts (id TEXT PRIMARY KEY, updated_at INTEGER NOT NULL, data_json TEXT NOT NULL)")
        self._number = 0
        self.begin()

    def begin(self, text: str = "") -> None:
        """A new part."""
        self._number += 1
        self.part = {"type": "text", "text": text}
        self.run("INSERT INTO chat_parts VALUES (?, 0, '{}')", (str(self._number),))

    def chunk(self, delta: str) -> None:
        """Append a delta, durably."""
        self.part["text"] += delta
        self.run("BEGIN IMMEDIATE")
        values = (orjson.dumps(self.part).decode(), now_ms(), str(self._number))
        self.run("UPDATE chat_parts SET data_json = ?, updated_at = ? WHERE id = ?", values)
        self.run("COMMIT")


class DeltaRows:
    """One narrow row per chunk, as ours: the least a durable chunk can cost."""

    def __init__(self, path: Path) -> None:
        self.run = connect(path).execute
        self.run(
            "CREATE TABLE deltas (part_id TEXT, seq INTEGER, created_at INTEGER NOT NULL, delta TEXT NOT NULL,"
            " PRIMARY KEY (part_id, seq)) WITHOUT ROWID"
        )
        self._number = self._seq = 0

    def begin(self) -> None:
        """A new part."""
        self._number, self._seq = self._number + 1, 0

    def chunk(self, delta: str) -> None:
        """Append a delta, durably."""
        self._seq += 1
        self.run("BEGIN IMMEDIATE")
        self.run("INSERT INTO deltas VALUES (?, ?, ?, ?)", (str(self._number), self._seq, now_ms(), delta))
        self.run("COMMIT")


class DeltaRowsOnServer:
    """The same in Postgres: one prepared statement that commits by itself."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.run = self.connection.cursor().execute
        self.run(
            "CREATE TABLE raw_deltas (part_id text, seq bigint, created_at bigint NOT NULL, delta text NOT NULL,"
            " PRIMARY KEY (part_id, seq))"
        )
        self._number = self._seq = 0

    def begin(self) -> None:
        """A new part."""
        self._number, self._seq = self._number + 1, 0

    def chunk(self, delta: str) -> None:
        """Append a delta, durably."""
        self._seq += 1
        values = (str(self._number), self._seq, now_ms(), delta)
        self.run("INSERT INTO raw_deltas VALUES (%s, %s, %s, %s)", values, prepare=True)


def transcript(connection: Any, session_id: str) -> list[dict[str, Any]]:
    """A session's messages with their parts, by hand: two queries and orjson."""
    mark, text = ("?", "") if isinstance(connection, sqlite3.Connection) else ("%s", "::text")
    head = f"SELECT id, role, metadata_json{text} FROM chat_messages WHERE session_id = {mark} ORDER BY created_at, id"
    body = f'SELECT message_id, data_json{text} FROM chat_parts WHERE session_id = {mark} ORDER BY message_id, "index"'
    parts: dict[str, list[Any]] = {}
    heads = connection.execute(head, (session_id,)).fetchall()
    for message_id, data in connection.execute(body, (session_id,)).fetchall():
        parts.setdefault(message_id, []).append(orjson.loads(data))
    return [
        {"id": id, "role": role, "parts": parts.get(id, []), "metadata": orjson.loads(metadata)} for id, role, metadata in heads
    ]
