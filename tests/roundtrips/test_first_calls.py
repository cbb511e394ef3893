"""What the first call on a connection waits for beside its own round trips, as docs/performance.md says."""

from persist import Store
from tests.roundtrips.meter import Meter, metered


def words(meter: Meter, store: Store) -> list[str]:
    """What each round trip of a verb begins with."""
    with meter.counted() as flights:
        store.messaging.sessions.list()
    return [flight.statements[0].partition(" ")[0] for flight in flights]


def test_a_new_connection_adds_its_connecting_and_one_question(postgres_url: str) -> None:
    with metered(postgres_url) as meter, Store.open(meter.url) as store:
        with store.read() as tx:
            tx.messaging.sessions.list()  # holds the connection of opening
            assert words(meter, store) == ["(connect)", "SELECT", "BEGIN"]
        assert words(meter, store) == ["BEGIN"]


def test_the_connection_of_opening_adds_a_ping(postgres_url: str) -> None:
    with metered(postgres_url) as meter, Store.open(meter.url) as store:
        assert words(meter, store) == [";", "BEGIN"]
        assert words(meter, store) == ["BEGIN"]


def test_a_statement_is_prepared_in_the_message_that_executes_it(postgres_url: str) -> None:
    with metered(postgres_url) as meter, Store.open(meter.url) as store:
        store.messaging.sessions.list()
        with meter.counted() as flights:
            store.messaging.sessions.list(platform="slack")
        assert len(flights) == 1
