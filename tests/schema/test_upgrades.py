"""Upgrades to revisions that do not exist yet: data stays, old code goes on, and a failure changes nothing."""

from collections.abc import Callable
from contextlib import ExitStack

import pytest

import persist
from persist.schema.metadata import HEAD
from persist.testing import FrozenClock
from tests.schema.conftest import Plant
from tests.schema.filling import LONG, fill, transcript
from tests.schema.places import Place

ADDS = """
op.add_column("chat_sessions", sa.Column("lane", sa.Text(), server_default="main", nullable=False))
op.create_table("chat_lanes", sa.Column("name", sa.Text(), primary_key=True))
op.create_index("ix_chat_sessions_lane", "chat_sessions", ["lane"])
"""
RAISES = """
op.create_table("chat_halves", sa.Column("name", sa.Text(), primary_key=True))
op.execute("UPDATE chat_sessions SET agent = 'half way'")
raise ValueError("planted")
"""


def test_an_upgrade_keeps_the_data_and_old_code_goes_on(migrated: Place, clock: FrozenClock, plant: Plant) -> None:
    with ExitStack() as stack:
        old = stack.enter_context(persist.Store.open(migrated.url, clock=clock, settings=LONG))
        running = fill(old, clock, stack)
        before, rows = transcript(old), migrated.rows("chat_messages", "chat_parts", "chat_part_deltas", "chat_step_usage")

        (number,) = plant(ADDS)
        persist.upgrade(migrated.url)

        assert persist.current(migrated.url) == number
        assert transcript(old) == before
        assert migrated.rows(*rows) == rows
        assert migrated.ask(f"SELECT DISTINCT lane FROM {migrated.named('chat_sessions')}") == [("main",)]
        with persist.Store.open(migrated.url, clock=clock, settings=LONG) as new:
            assert transcript(new) == before
        running.feed({"type": "text-delta", "id": "t1", "delta": "ished"})
        with old.begin() as tx:
            tx.chat.sessions.create(agent="old code", model={})
    assert migrated.ask(f"SELECT lane FROM {migrated.named('chat_sessions')} WHERE agent = 'old code'") == [("main",)]


def test_opening_upgrades_a_file_and_only_checks_postgres(migrated: Place, plant: Plant) -> None:
    (number,) = plant(ADDS)
    if migrated.is_postgres:
        with pytest.raises(persist.SchemaOutdated) as caught:
            persist.Store.open(migrated.url)
        assert (caught.value.found, caught.value.known) == (HEAD, number)
        persist.Store.open(migrated.url, migrate=True).close()
    else:
        with pytest.raises(persist.SchemaOutdated):
            persist.Store.open(migrated.url, migrate=False)
        assert persist.current(migrated.url) == HEAD
        persist.Store.open(migrated.url).close()
    assert persist.current(migrated.url) == number
    persist.check(migrated.url)


def test_an_upgraded_database_is_made_of_the_same_facts_as_a_new_one(
    migrated: Place, empty_database: Callable[[], Place], plant: Plant
) -> None:
    plant(ADDS, 'op.add_column("chat_lanes", sa.Column("size", sa.BigInteger()))')
    persist.upgrade(migrated.url)
    fresh = empty_database()
    persist.upgrade(fresh.url)
    assert migrated.catalog() ^ fresh.catalog() == set()
    assert migrated.rows() == fresh.rows()


@pytest.mark.parametrize("bodies", [(RAISES,), (ADDS, RAISES), (ADDS, ADDS.replace("lane", "road"), RAISES)])
def test_a_failing_revision_changes_nothing(migrated: Place, clock: FrozenClock, plant: Plant, bodies: tuple[str, ...]) -> None:
    with ExitStack() as stack:
        fill(stack.enter_context(persist.Store.open(migrated.url, clock=clock, settings=LONG)), clock, stack)
    before = migrated.catalog(), migrated.rows()
    numbers = plant(*bodies)
    with pytest.raises(persist.MigrationFailed, match="planted") as caught:
        persist.upgrade(migrated.url)
    error = caught.value
    assert (error.from_version, error.to_version, error.revision) == (HEAD, numbers[-1], numbers[-1])
    assert error.path == (migrated.schema or str(migrated.path))
    assert isinstance(error.__cause__, ValueError)
    assert (migrated.catalog(), migrated.rows()) == before


def test_after_a_failing_revision_the_older_code_still_opens(
    migrated: Place, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(RAISES)
    with pytest.raises(persist.MigrationFailed):
        persist.upgrade(migrated.url)
    monkeypatch.undo()
    persist.check(migrated.url)
    with persist.Store.open(migrated.url) as store, store.begin() as tx:
        tx.chat.sessions.create(agent="build", model={})


def test_a_failing_first_upgrade_leaves_no_table(empty_database: Callable[[], Place], plant: Plant) -> None:
    place = empty_database()
    (number,) = plant(RAISES)
    with pytest.raises(persist.MigrationFailed) as caught:
        persist.upgrade(place.url)
    assert (caught.value.from_version, caught.value.revision) == (None, number)
    assert persist.current(place.url) is None
    if place.is_postgres:
        assert place.ask("SELECT 1 FROM pg_namespace WHERE nspname = 'persist'") == []
    else:
        assert place.catalog() == set()


def test_a_database_error_in_a_revision_is_named(migrated: Place, plant: Plant) -> None:
    (number,) = plant('op.execute("UPDATE chat_nothing SET x = 1")')
    with pytest.raises(persist.MigrationFailed, match="chat_nothing") as caught:
        persist.upgrade(migrated.url)
    assert caught.value.revision == number
    assert persist.current(migrated.url) == HEAD


def test_opening_a_file_whose_upgrade_fails(sqlite_url: str, plant: Plant) -> None:
    place = Place(sqlite_url)
    persist.upgrade(sqlite_url)
    before = place.catalog(), place.rows()
    plant(RAISES)
    with pytest.raises(persist.MigrationFailed):
        persist.Store.open(sqlite_url)
    assert (place.catalog(), place.rows()) == before
