"""Every table has an identity: where all are published, as for logical replication, rows can still be changed and deleted."""

import psycopg
import pytest

from persist import Store
from persist.testing import FrozenClock
from tests.schema.places import Place

_KEYLESS = """
    SELECT c.relname::text FROM pg_class c
    WHERE c.relnamespace = 'persist'::regnamespace AND c.relkind = 'r' AND c.relreplident = 'd'
      AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)"""


@pytest.fixture
def published(postgres_url: str) -> Place:
    """A database with a publication of all of our tables."""
    place = Place(postgres_url)
    place.run("CREATE PUBLICATION moving FOR ALL TABLES")
    return place


def test_a_value_is_bound_a_second_time_and_unbound(published: Place, clock: FrozenClock) -> None:
    with Store.open(published.url, clock=clock) as store:
        with store.begin() as tx:
            run = tx.programs.runs.create(program_path="deploy.prose")
            tx.programs.bindings.bind(run.id, "goal", "small")
        with store.begin() as tx:
            tx.programs.bindings.bind(run.id, "goal", "large")
        with store.read() as tx:
            bound = tx.programs.bindings.get(run.id, "goal")
    assert bound is not None
    assert bound.value == "large"
    published.run("DELETE FROM persist.bindings")
    assert published.ask("SELECT * FROM persist.bindings") == []


def test_without_an_identity_the_server_refuses(published: Place, clock: FrozenClock) -> None:
    """The test above shows something: the server refuses such an update of a published table."""
    with Store.open(published.url, clock=clock) as store, store.begin() as tx:
        run = tx.programs.runs.create(program_path="deploy.prose")
        tx.programs.bindings.bind(run.id, "goal", "small")
    published.run("ALTER TABLE persist.bindings REPLICA IDENTITY DEFAULT")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="replica identity"):
        published.run("UPDATE persist.bindings SET value = 'large'")


def test_every_table_has_an_identity(postgres_url: str) -> None:
    assert Place(postgres_url).ask(_KEYLESS) == []
