"""Rows as a shell writes them, and what an audit says of them."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from persist import Store
from persist.db.dialects.sqlite.row_guards import lift_row_guards
from persist.programs import audit


@contextmanager
def before_guards(raw: sqlite3.Connection) -> Iterator[None]:
    """Rows that are written in the block are older than the row guards, or those of a shell that took the guards away."""
    restore = lift_row_guards(raw)
    yield
    restore()


def put(raw: sqlite3.Connection, name: str, path: object) -> None:
    """A row as a shell wrote it while nothing checked its path."""
    with before_guards(raw):
        raw.execute("INSERT OR REPLACE INTO bindings (name, kind, attachment_path) VALUES (?, 'let', ?)", (name, path))


def codes(store: Store, run: str) -> list[str]:
    return [finding.code for finding in audit(store, run)]
