"""The meter counts what a client waits for, however many statements that are."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from persist import Store
from persist.db.dialects.sqlite.connections import FileConnection
from persist.errors import PersistError
from tests.roundtrips.meter import Meter, complaint, metered
from tests.statemachines.scene import arguments, make, verbs
from tests.statement_log import seen_statements


@pytest.fixture
def meter(postgres_url: str) -> Iterator[Meter]:
    with metered(postgres_url) as meter:
        yield meter


def statements(meter: Meter, call: Callable[[], object]) -> list[list[str]]:
    return [flight.statements for flight in meter.flights(call, bound=0)]


def read_answers(connection: psycopg.Connection) -> None:
    """Wait for what the server still has to say; without the GIL, which the proxy needs."""
    connection.wait(psycopg.generators.fetch_many(connection.pgconn))


def test_each_answer_that_is_waited_for_counts(meter: Meter) -> None:
    with psycopg.connect(meter.url, autocommit=True) as connection:

        def one_by_one() -> None:
            connection.execute("SELECT 1")
            connection.execute("SELECT %s::int", (2,))

        assert statements(meter, one_by_one) == [["SELECT 1"], ["SELECT $1::int"]]


def test_statements_that_are_sent_together_are_one_round_trip(meter: Meter) -> None:
    with psycopg.connect(meter.url, autocommit=True) as connection:

        def together() -> None:
            with connection.pipeline():
                connection.execute("SELECT 1")
                connection.execute("SELECT 2")

        assert statements(meter, together) == [["SELECT 1", "SELECT 2"]]


def test_an_answer_that_is_not_waited_for_does_not_count(meter: Meter) -> None:
    with psycopg.connect(meter.url, autocommit=True) as connection:

        def go_on() -> None:
            read_answers(connection)
            connection.execute("BEGIN")
            connection.pgconn.send_query(b"COMMIT")
            connection.pgconn.flush()

        assert statements(meter, go_on) == [["BEGIN"]]
        read_answers(connection)


def test_a_new_connection_is_listed(meter: Meter) -> None:
    flights = meter.flights(lambda: psycopg.connect(meter.url).close(), bound=0)
    assert flights[0].statements[0] == "(connect)"


def test_a_complaint_names_the_call_its_bound_its_count_and_the_statements(meter: Meter) -> None:
    with psycopg.connect(meter.url, autocommit=True) as connection:
        flights = meter.flights(lambda: connection.execute("SELECT 1"), bound=0)
    assert complaint("looking", 0, flights) == "looking: 1 round trips, bound 0\n    1. SELECT 1"
    assert complaint("looking", 1, flights) is None


# What plain verbs execute on a SQLite file, where a statement costs no round trip but time.


_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_TEXT = [{"type": "text", "text": "hi"}]

PLAIN: dict[str, tuple[Callable[[Any, str], object], list[str]]] = {
    "nothing": (lambda tx, _: None, []),
    "chat.sessions.get": (lambda tx, session: tx.chat.sessions.get(session), ["SELECT"]),
    "chat.messages.append": (
        lambda tx, session: tx.chat.messages.append(session, role="user", parts=_TEXT),
        ["UPDATE", "INSERT", "INSERT"],
    ),
    "telemetry.usage.sample": (
        lambda tx, _: tx.telemetry.usage.sample(at=_AT, token_input=5, instance_id="box"),
        ["INSERT", "INSERT"],
    ),
    "workflows.runs.list": (lambda tx, _: tx.workflows.runs.list(limit=20), ["SELECT"]),
}
"""Verbs, and the statements that one of them executes between BEGIN and COMMIT."""


def test_plain_verbs_execute_few_statements(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = seen_statements(monkeypatch)
    with Store.open(sqlite_url) as store:
        session = store.chat.sessions.create(agent="a", model={}).id
        for name, (verb, expected) in PLAIN.items():
            with store.begin() as tx:
                seen.clear()
                verb(tx, session)
            assert [statement.split()[0] for statement in seen] == [*expected, "COMMIT"], name


class _UndoneError(Exception):
    """Rolls a transaction back."""


def test_the_driver_gets_no_value_that_it_has_to_convert(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """sqlite3 looks for an adapter of each other type, at each execution: a subclass of `str` costs more than its row."""
    converted: set[tuple[str, type]] = set()
    plain = (str, int, float, bytes, type(None))
    now, executed = [""], set[str]()

    def execute(connection: sqlite3.Connection, sql: str, args: Sequence[Any] = ()) -> sqlite3.Cursor:
        executed.add(now[0])
        converted.update((now[0], type(value)) for value in args if type(value) not in plain)
        return sqlite3.Connection.execute(connection, sql, args)

    monkeypatch.setattr(FileConnection, "execute", execute, raising=False)
    with Store.open(sqlite_url) as store:
        ids = make(store)
        for verb in verbs():
            now[0] = verb.name
            with suppress(PersistError, _UndoneError), store.begin() as tx:
                verb.call(tx, arguments(verb, ids))
                raise _UndoneError
    assert len(executed) > 100
    assert not converted
