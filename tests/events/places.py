"""Rebuilding one database from another's log, and comparing what the two hold."""

from typing import Any

from persist import Store
from persist.db.changes.journal import logged_tables
from persist.events import rebuild
from persist.schema.metadata import metadata
from tests.schema.catalog import Fact
from tests.schema.filling import transcript
from tests.schema.places import Place

TABLES = [table.name for table in logged_tables(metadata.sorted_tables)]


def raw_rows(url: str) -> dict[str, list[Fact]]:
    """Every row of every logged table, as the database stores it."""
    return Place(url).rows(*TABLES)


def rebuilt(source: str, target: str) -> str:
    """The target, made from the source's log."""
    with Store.open(source) as a, Store.open(target) as b:
        rebuild(a, b)
    return target


def assert_rebuilt_byte_for_byte(source: str, target: str) -> None:
    """A new database has the very rows of the old one."""
    rebuilt(source, target)
    found, expected = raw_rows(target), raw_rows(source)
    for table in TABLES:
        assert found[table] == expected[table], table


def seen(url: str) -> dict[str, Any]:
    """What a reader sees but for the log."""
    with Store.open(url) as store:
        return {kind: found for kind, found in transcript(store).items() if kind != "events"}
