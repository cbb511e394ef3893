"""Upgrades of large tables on Postgres: what takes long is done while others write, and goes on where a killed one was."""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from alembic import command
from sqlalchemy import StaticPool, create_engine, true

import persist
from persist import MigrationFailed, Store
from persist.db.dialects.postgres import upgrading
from persist.schema.metadata import HEAD, REVISIONS
from persist.testing import FrozenClock
from tests.schema.conftest import Plant
from tests.schema.filling import LONG, fill, transcript
from tests.schema.places import Place, repository_config
from tests.schema.test_commands import at_once
from tests.subprocesses import Worker

OLD = "0020"
"""A revision after which a table with a million rows gets columns and indexes."""
ADDS = """
op.add_column("chat_sessions", sa.Column("lane", sa.Text()))
op.create_index("ix_chat_sessions_lane", "chat_sessions", ["lane", "id"])
op.create_table("chat_lanes", sa.Column("name", sa.Text(), primary_key=True), sa.Column("of", sa.Text()))
op.create_index("ix_chat_lanes_of", "chat_lanes", ["of"])
"""
ONE_EACH = """
op.create_index("ux_chat_sessions_agent", "chat_sessions", ["agent"], unique=True)
"""
CHECKS = """
op.add_column("chat_sessions", sa.Column("lane", sa.Text()))
op.create_table("chat_lanes", sa.Column("name", sa.Text(), primary_key=True), sa.Column("size", sa.Integer()))
if op.get_context().dialect.name == "postgresql":
    op.create_check_constraint(op.f("ck_lane"), "chat_sessions", "lane IS NULL OR lane <> ''", postgresql_not_valid=True)
    op.create_foreign_key(op.f("fk_lane"), "chat_sessions", "chat_lanes", ["lane"], ["name"], postgresql_not_valid=True)
    op.create_check_constraint(op.f("ck_size"), "chat_lanes", "size > 0", postgresql_not_valid=True)
"""
REPLACES = """
op.create_index("ix_chat_sessions_agent_newest", "chat_sessions", ["agent", sa.text("created_at DESC")])
op.drop_index("ix_chat_sessions_agent_updated_at", "chat_sessions")
"""
_INVALID = """
    SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE NOT i.indisvalid AND c.relnamespace = 'persist'::regnamespace"""
_REACHED = "SELECT value FROM persist._meta WHERE key = 'upgrade_reached'"

At = Callable[[str], Place]


@pytest.fixture
def at(empty_postgres_url: str) -> At:
    """A function that brings an empty database to an old revision."""

    def make(revision: str) -> Place:
        command.upgrade(repository_config(empty_postgres_url), revision)
        return Place(empty_postgres_url)

    return make


def is_current(place: Place, new: Place) -> bool:
    """Whether it is as a database that was made at the current revision."""
    persist.check(place.url)
    return place.catalog() == new.catalog() and place.rows() == new.rows()


@pytest.fixture
def new(postgres_url: str) -> Place:
    return Place(postgres_url)


@pytest.mark.parametrize("revision", [*REVISIONS[:-1:5], REVISIONS[-2]])
def test_a_database_of_an_old_revision_becomes_as_a_new_one(revision: str, at: At, new: Place) -> None:
    place = at(revision)
    persist.upgrade(place.url)
    assert is_current(place, new)


def test_an_upgrade_where_the_server_refuses_triggers(empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrading, "is_distributed", true)
    with Store.open(empty_postgres_url, migrate=True) as store, psycopg.connect(empty_postgres_url) as connection:
        store.chat.sessions.create(agent="a", model={})
        found = connection.execute("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgname LIKE 'persist_row_guard%'")
        assert found.fetchall() == []
        assert connection.execute("SELECT version_num FROM persist.persist_alembic_version").fetchone() == (HEAD,)


@pytest.mark.parametrize(
    ("words", "count", "between_the_phases"),
    [
        ("ALTER TABLE", 1, False),
        ("COMMIT", 1, False),
        ("CREATE INDEX CONCURRENTLY", 1, True),
        ("CREATE INDEX CONCURRENTLY", 6, True),
        ("DELETE FROM", 2, True),
    ],
)
def test_an_upgrade_that_is_killed_goes_on(words: str, count: int, between_the_phases: bool, at: At, new: Place) -> None:
    place = at(OLD)
    with Worker("tests.schema.upgrading_worker", place.url, words, count) as worker:
        assert worker.wait(60) == -signal.SIGKILL
    assert persist.current(place.url) == OLD
    assert bool(place.ask(_REACHED)) == between_the_phases
    persist.upgrade(place.url)
    assert is_current(place, new)


def until(place: Place, query: str) -> Any:
    """The first row of a query that has one."""
    for _ in range(600):
        if rows := place.ask(query):
            return rows[0][0]
        time.sleep(0.05)
    raise AssertionError(query)


_BUILDING = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'CREATE INDEX CONC%' AND state = 'active' AND wait_event_type = 'Lock'"""


def test_an_index_that_is_half_made_is_made_again(at: At, new: Place) -> None:
    place = at(OLD)
    with psycopg.connect(place.url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")  # a snapshot, for whose end an index waits
        with Worker("tests.schema.upgrading_worker", place.url) as worker:
            building = until(place, _BUILDING)
            worker.kill()
            place.ask(f"SELECT pg_terminate_backend({building})")
    until(place, f"SELECT 1 WHERE NOT EXISTS ({_BUILDING})")
    assert len(place.ask(_INVALID)) == 1
    persist.upgrade(place.url)
    assert place.ask(_INVALID) == []
    assert is_current(place, new)


def test_others_write_while_an_index_is_made(at: At, new: Place) -> None:
    place = at(OLD)
    with psycopg.connect(place.url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        with Worker("tests.schema.upgrading_worker", place.url) as worker:
            until(place, _BUILDING)
            place.run(
                "SET LOCAL lock_timeout = '1ms'",
                "INSERT INTO persist.workflow_runs (id, workflow_name, trigger_id, current_phase, started_at, updated_at)"
                " VALUES ('r', 'triage', 't', 'plan', now(), now())",
                "UPDATE persist.workflow_runs SET status = 'succeeded'",
                "DELETE FROM persist.workflow_runs",
            )
            assert persist.current(place.url) == OLD
            reader.rollback()
            assert worker.wait(60) == 0
    assert is_current(place, new)


def test_an_upgrade_lets_go_while_another_transaction_has_the_table(at: At, new: Place) -> None:
    place = at(OLD)
    with psycopg.connect(place.url) as writer:
        writer.execute("UPDATE persist.workflow_runs SET status = 'succeeded'")
        with Worker("tests.schema.upgrading_worker", place.url) as worker:
            waiting = _BUILDING.replace("CREATE INDEX CONC", "ALTER TABLE")
            until(place, waiting)
            until(place, f"SELECT 1 WHERE NOT EXISTS ({waiting})")  # others pass by here
            writer.commit()
            assert worker.wait(60) == 0
    assert is_current(place, new)


def test_three_upgrades_of_an_old_database_at_once(at: At, new: Place) -> None:
    place = at(OLD)
    at_once("upgrade", place.url, 3)
    assert is_current(place, new)


def test_an_upgrade_by_alembic_in_two_steps(at: At, new: Place) -> None:
    place = at(OLD)
    command.upgrade(repository_config(place.url), "0022")
    assert persist.current(place.url) == "0022"
    assert place.ask(_REACHED) == []
    command.upgrade(repository_config(place.url), "+1")
    assert persist.current(place.url) == "0023"
    command.upgrade(repository_config(place.url), "head")
    assert is_current(place, new)


@pytest.fixture
def halfway(monkeypatch: pytest.MonkeyPatch) -> Callable[[Place], MigrationFailed]:
    """A function that upgrades a database until the first phase is done, and no further."""

    def stop(place: Place) -> MigrationFailed:
        def fail(*_: object, **__: object) -> None:
            raise ConnectionError("planted")

        with monkeypatch.context() as patched:
            patched.setattr(upgrading, "perform", fail)
            with pytest.raises(MigrationFailed, match="planted") as caught:
                persist.upgrade(place.url)
        return caught.value

    return stop


def test_code_of_the_old_version_runs_on_a_half_upgraded_schema(
    new: Place, clock: FrozenClock, plant: Plant, halfway: Callable[[Place], MigrationFailed], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        old = stack.enter_context(Store.open(new.url, clock=clock, settings=LONG))
        running = fill(old, clock, stack)
        before = transcript(old)
        (number,) = plant(ADDS)
        error = halfway(new)
        assert (error.from_version, error.to_version, error.revision) == (HEAD, number, number)
        assert error.step == "create index ix_chat_sessions_lane on chat_sessions"
        assert persist.current(new.url) == HEAD
        with pytest.raises(persist.SchemaOutdated):
            Store.open(new.url)
        running.feed({"type": "text-delta", "id": "t1", "delta": "ished"})
        with old.begin() as tx:
            tx.chat.sessions.create(agent="old code", model={})
        assert transcript(old) != before
        monkeypatch.undo()
        persist.check(new.url)
        with Store.open(new.url, clock=clock, settings=LONG) as started_meanwhile, started_meanwhile.begin() as tx:
            tx.chat.sessions.create(agent="old code", model={})


def test_a_newer_version_goes_on_where_an_older_one_was_killed(
    new: Place, empty_postgres_url: str, plant: Plant, halfway: Callable[[Place], MigrationFailed]
) -> None:
    plant(ADDS)
    halfway(new)
    plant(ADDS, REPLACES)
    persist.upgrade(new.url)
    fresh = Place(empty_postgres_url)
    persist.upgrade(fresh.url)
    assert new.catalog() ^ fresh.catalog() == set()
    assert new.rows() == fresh.rows()


@pytest.mark.parametrize("how", ["connection", "engine of one connection"])
def test_a_host_in_whose_transaction_all_is_done(
    how: str, at: At, new: Place, halfway: Callable[[Place], MigrationFailed]
) -> None:
    place = at(OLD)
    halfway(place)
    engine = create_engine(place.url.replace("postgresql://", "postgresql+psycopg://"), poolclass=StaticPool)
    if how == "connection":
        with engine.begin() as connection:
            persist.upgrade(connection)
    else:
        persist.upgrade(engine)
    engine.dispose()
    assert is_current(place, new)


@pytest.mark.parametrize("body", [ADDS, CHECKS, REPLACES], ids=["index", "constraints", "replaced index"])
def test_what_a_revision_may_do_to_a_large_table(body: str, new: Place, empty_postgres_url: str, plant: Plant) -> None:
    plant(body)
    persist.upgrade(new.url)
    fresh = Place(empty_postgres_url)
    persist.upgrade(fresh.url)
    assert new.catalog() ^ fresh.catalog() == set()
    unchecked = "SELECT conname FROM pg_constraint WHERE NOT convalidated"
    assert new.ask(unchecked) == fresh.ask(unchecked) == []


def test_rows_that_an_index_refuses(new: Place, plant: Plant) -> None:
    with Store.open(new.url) as store, store.begin() as tx:
        sessions = [tx.chat.sessions.create(agent="build", model={}).id for _ in range(2)]
    (number,) = plant(ONE_EACH)
    for _ in range(2):
        with pytest.raises(MigrationFailed, match="ux_chat_sessions_agent") as caught:
            persist.upgrade(new.url)
        assert caught.value.step == "create index ux_chat_sessions_agent on chat_sessions"
    new.run(f"DELETE FROM persist.chat_sessions WHERE id = '{sessions[0]}'")
    persist.upgrade(new.url)
    assert persist.current(new.url) == number
    assert new.ask(_INVALID) == []
