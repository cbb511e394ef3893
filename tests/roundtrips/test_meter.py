"""The meter counts what a client waits for, however many statements that are."""

from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.roundtrips.meter import Meter, complaint, metered


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
