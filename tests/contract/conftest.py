"""A second handle on the test's database, and a raw connection that knows nothing of persist."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from persist import Store
from persist.db.values.json import MARK
from tests.contract.chat.scenes import create
from tests.kept_connections import KeptConnections, marked
from tests.query_plans import Asked, asked_statements
from tests.seeded_databases import with_file
from tests.statement_log import seen_statements


def unmarked(value: Any) -> Any:
    """What a raw read of Postgres gives, without the marks of the order of keys."""
    if isinstance(value, list):
        return [unmarked(item) for item in value]
    return {key: unmarked(item) for key, item in value.items() if key != MARK} if isinstance(value, dict) else value


class Raw:
    """SQL on a connection of its own, in autocommit, with the tables' bare names and `?` for parameters."""

    def __init__(self, url: str) -> None:
        self._connection: Any
        self.is_sqlite = url.startswith("sqlite")
        self.changed_nothing_else = True
        """Whether all that it ran were queries and changes of rows, so that another test may go on with it."""
        if self.is_sqlite:
            self._connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
        else:
            self._connection = psycopg.connect(url, autocommit=True, options="-c search_path=persist")

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        self.changed_nothing_else &= statement.split(maxsplit=1)[0].upper() in {"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"}
        if not self.is_sqlite:
            statement = statement.replace("?", "%s")
        cursor = self._connection.execute(statement, values)
        rows: list[tuple[Any, ...]] = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        return rows

    def value(self, statement: str, *values: Any) -> Any:
        return self.rows(statement, *values)[0][0]

    def count(self, table: str) -> int:
        return int(self.value(f"SELECT count(*) FROM {table}"))

    def json(self, statement: str, *values: Any) -> Any:
        """One JSON column of one row, as a Python value on both databases; without the marks of the order of keys."""
        value = self.value(statement, *values)
        return unmarked(json.loads(value) if isinstance(value, str) else value)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """Every SELECT, with its parameters, of the connections that the test opens."""
    return asked_statements(monkeypatch)


@pytest.fixture
def open_raw() -> Iterator[Callable[[str], Raw]]:
    with ExitStack() as stack:

        def open_(url: str) -> Raw:
            raw = Raw(url)
            stack.callback(raw.close)
            return raw

        yield open_


@pytest.fixture
def raw(
    store: Any, database_url: str, open_raw: Callable[[str], Raw], keeps_connections: bool, request: pytest.FixtureRequest
) -> Iterator[Raw]:
    """After the store, so that there is a database."""
    if not keeps_connections:
        yield open_raw(database_url)
        return
    kept: KeptConnections = request.getfixturevalue("kept_connections")
    raw = kept.take(database_url, Raw) or Raw(marked(database_url))
    yield raw
    if raw.changed_nothing_else:
        kept.put(database_url, raw)
    else:
        raw.close()


@pytest.fixture
def other(store: Any, open_kept: Callable[[], Any]) -> Any:
    """Another store on the same database: what it reads is durable."""
    return open_kept()


@pytest.fixture
def session(store: Any) -> str:
    """The id of an empty session."""
    return create(store)


@pytest.fixture
def sqlite_store(sqlite_url: str) -> Iterator[Any]:
    """A store on SQLite alone, for what only SQLite can hold."""
    with Store.open(with_file(sqlite_url)) as store:
        yield store


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement of every connection that is opened after this fixture, on whatever thread it runs."""
    return seen_statements(monkeypatch)


@pytest.fixture
def counted_store(statements: list[str], open_store: Callable[..., Any]) -> Any:
    """A store whose statements are all seen."""
    return open_store()


def pages_of(verb: Callable[..., Any], *args: Any, **options: Any) -> Iterator[list[Any]]:
    """The items of each page, from the first one on."""
    after = None
    for _ in range(1000):
        page = verb(*args, after=after, **options)
        yield [*page.items]
        after = page.cursor
        if after is None:
            return
    raise AssertionError("the pages do not come to an end")


def ids_of_pages(verb: Callable[..., Any], *args: Any, **options: Any) -> Iterator[list[str]]:
    """The ids of each page."""
    return ([item.id for item in page] for page in pages_of(verb, *args, **options))
