"""What a careful programmer writes by hand against the driver: the floors that everything is measured against."""

import sqlite3
import time
from pathlib import Path
from typing import Any

import orjson

PRAGMAS = ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=5000", "foreign_keys=ON")


def connect(path: Path) -> sqlite3.Connection:
    """A raw connection with the same durability as ours."""
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


class InPlaceRewrite:
    """One row holds the whole part; every chunk rewrites it and commits."""

    def __init__(self, path: Path) -> None:
        self.run = connect(path).execute
        self.run("CREATE TABLE chat_parts (id TEXT PRIMARY KEY, data_json TEXT NOT NULL, updated_at INTEGER NOT NULL)")
        self.run("INSERT INTO chat_parts VALUES ('p', '{}', 0)")
        self.part = {"type": "text", "text": ""}

    def chunk(self, delta: str) -> None:
        """Append a delta, durably."""
        self.part["text"] += delta
        self.run("BEGIN IMMEDIATE")
        values = (orjson.dumps(self.part).decode(), int(time.time() * 1000), "p")
        self.run("UPDATE chat_parts SET data_json = ?, updated_at = ? WHERE id = ?", values)
        self.run("COMMIT")


class DeltaRows:
    """One narrow row per chunk: the least a durable chunk can cost."""

    def __init__(self, path: Path) -> None:
        self.run = connect(path).execute
        self.run("CREATE TABLE deltas (part TEXT, seq INTEGER, delta TEXT, PRIMARY KEY (part, seq)) WITHOUT ROWID")
        self.seq = 0

    def chunk(self, delta: str) -> None:
        """Append a delta, durably."""
        self.seq += 1
        self.run("BEGIN IMMEDIATE")
        self.run("INSERT INTO deltas VALUES ('p', ?, ?)", (self.seq, delta))
        self.run("COMMIT")


def transcript(connection: sqlite3.Connection, session_id: str) -> list[dict[str, Any]]:
    """A session's messages with their parts, by hand: two queries and orjson."""
    heads = connection.execute(
        "SELECT id, role, metadata_json FROM chat_messages WHERE session_id = ? ORDER BY created_at, id", (session_id,)
    ).fetchall()
    bodies = connection.execute(
        'SELECT message_id, data_json FROM chat_parts WHERE session_id = ? ORDER BY message_id, "index"', (session_id,)
    ).fetchall()
    parts: dict[str, list[Any]] = {}
    for message_id, data in bodies:
        parts.setdefault(message_id, []).append(orjson.loads(data))
    return [
        {"id": id, "role": role, "parts": parts.get(id, []), "metadata": orjson.loads(metadata)} for id, role, metadata in heads
    ]
