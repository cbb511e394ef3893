"""Rows as a shell writes them, and what an audit says of them."""

import sqlite3

from persist import Store
from persist.programs import audit


def put(raw: sqlite3.Connection, name: str, path: str) -> None:
    """A row as a shell writes it."""
    raw.execute("INSERT OR REPLACE INTO bindings (name, kind, attachment_path) VALUES (?, 'let', ?)", (name, path))


def codes(store: Store, run: str) -> list[str]:
    return [finding.code for finding in audit(store, run)]
