"""Databases of either kind for tests that move rows from one to another."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from persist import Store
from persist.maintenance import copy
from tests.schema.places import Place
from tests.seeded_databases import with_file

CROSSING = ["sqlite-postgres", "postgres-sqlite"]
PAIRS = ["sqlite-sqlite", *CROSSING, "postgres-postgres"]
Pair = tuple[str, str]


def new_url(request: pytest.FixtureRequest, kind: str, tmp_path: Path, name: str) -> str:
    """A database of that kind, ready for Store.open."""
    if kind == "postgres":
        create: Callable[[], str] = request.getfixturevalue("new_postgres_database")
        return create()
    return f"sqlite:///{(tmp_path / name).as_posix()}"


def many(url: str, rows: int) -> None:
    """A new database with so many messages of one messenger session."""
    with_file(url)
    place, at = Place(url), "2026-01-02T03:04:05.678Z"
    place.run(
        f"INSERT INTO {place.named('messaging_sessions')} (id, platform, channel_id, user_id, created_at, last_activity_at)"
        f" VALUES ('s', 'slack', 'C', 'U', '{at}', '{at}')",
        f"INSERT INTO {place.named('messaging_messages')} (session_id, role, timestamp, content)"
        f" WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"
        f" SELECT 's', 'user', '{at}', 'Is it deployed? ' || i FROM n"
        if not place.is_postgres
        else f"INSERT INTO {place.named('messaging_messages')} (session_id, role, timestamp, content)"
        f" SELECT 's', 'user', '{at}', 'Is it deployed? ' || i FROM generate_series(1, {rows}) i",
    )


@contextmanager
def opened(*urls: str) -> Iterator[list[Store]]:
    """Stores on these databases."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(Store.open(url if Path(url.removeprefix("sqlite:///")).exists() else with_file(url)))
            for url in urls
        ]


def checksums(store: Store) -> dict[str, str]:
    """Of every table but `_meta`, as a copy computes them."""
    with Store.open("sqlite:///:memory:") as scratch:
        found = copy(store, scratch).checksums
    return {table: found[table] for table in found if table != "_meta"}
