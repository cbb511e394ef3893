"""What the plain model of sessions and branches is made of, and a whole file as text."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path


@dataclass
class Session:
    pool: str
    updated_at: datetime
    running: bool
    pointers: list[str] = field(default_factory=list)


@dataclass
class Branch:
    session: str
    pool: str
    inherited: list[str]
    parent: str | None = None
    system: str | None = None


def one_of(ids: Iterable[str], pick: int) -> str:
    ordered = sorted(ids)
    return ordered[pick % len(ordered)]


def dumped(path: Path) -> list[str]:
    """Every row of the file, and its schema."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())
