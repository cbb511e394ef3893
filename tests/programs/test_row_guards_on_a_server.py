"""Row guards on Postgres, as a store and a copy meet them; what a raw client meets is in tests/contract/programs."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from persist import Store
from persist.db.transactions.verb_frame import Verb
from persist.errors import Conflict
from persist.maintenance import copy
from persist.store.transaction import work_of
from tests.programs.raw_rows import put

pytestmark = pytest.mark.one_server  # row guards are triggers


@pytest.fixture
def server(postgres_url: str) -> Iterator[Store]:
    with Store.open(postgres_url) as store:
        yield store


@pytest.fixture
def client(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A client that knows nothing of persist."""
    with psycopg.connect(postgres_url, autocommit=True, options="-c search_path=persist") as connection:
        yield connection


def test_a_store_says_what_was_refused(server: Store) -> None:
    server.programs.runs.create(id="r")
    server.programs.bindings.bind("r", "topic", "as it was", kind="const")

    def write() -> None:
        with server.begin() as tx, Verb(work_of(tx), "a statement of a host", writes=True):
            work_of(tx).select(text("UPDATE persist.bindings SET value = 'other'"))

    with pytest.raises(Conflict, match="bound once") as caught:
        write()
    assert caught.value.constraint == "bindings.kind"
    assert server.programs.bindings.resolve("r", "topic").value == "as it was"


def test_a_copy_keeps_rows_that_are_older_than_the_rules(
    run_file: Store, file: Path, server: Store, client: psycopg.Connection[Any]
) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as raw:
        put(raw, "old", "../../secret.md")
    copy(run_file, server)
    assert client.execute("SELECT name, attachment_path FROM bindings").fetchall() == [("old", "../../secret.md")]
    client.execute("UPDATE bindings SET value = 'new'")
    with pytest.raises(psycopg.errors.CheckViolation):
        client.execute("UPDATE bindings SET attachment_path = '../other.md'")
