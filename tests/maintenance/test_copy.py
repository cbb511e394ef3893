"""Copying between databases: everything arrives, is compared, and is what it was."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine

from persist import Store
from persist.errors import Conflict, InvalidValue, PersistError, SchemaTooNew, StoreCorrupt, UnsupportedEngine
from persist.maintenance import copy
from persist.testing import FrozenClock
from tests.maintenance.filled import filled
from tests.maintenance.moving import Pair, new_url, opened
from tests.schema.filling import transcript
from tests.schema.places import Place

SEEDED = {"_meta", "message_types", "exchange_cursors"}


@pytest.fixture(params=["sqlite", "postgres"])
def target_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_url(request, str(request.param), tmp_path, "target.db")


def rows_of(url: str) -> dict[str, int]:
    with Store.open(url, read_only=True):
        found = Place(url).rows()
    return {table: len(rows) for table, rows in found.items() if table != "persist_alembic_version"}


def test_false_stays_false_and_null_stays_null(pair: Pair, clock: FrozenClock) -> None:
    with Store.open(pair[0], clock=clock) as store, store.begin() as tx:
        for number in range(6):
            done = tx.workflows.executions.start(trigger_type="t", trigger_id=str(number), skill="s")
            if number % 3:
                tx.workflows.executions.finish(done.id, success=number % 3 == 1, error="" if number % 2 else None)
        tx.workflows.workflow_overrides.set("off", enabled=False)
        tx.workflows.workflow_overrides.set("on", enabled=True)
    with opened(*pair) as (source, target):
        report = copy(source, target)
        assert report.tables["executions"] == 6
        with target.read() as tx:
            found = {one.trigger_id: one for one in tx.workflows.executions.list(limit=100).items}
            assert len(found) == len({one.id for one in found.values()}) == 6
            expected = {str(number): (None, True, False)[number % 3] for number in range(6)}
            assert {trigger: one.success for trigger, one in found.items()} == expected
            switches = {one.name: one.enabled for one in tx.workflows.workflow_overrides.all()}
    assert switches == {"off": False, "on": True}
    errors = [row[0] for row in Place(pair[1]).ask(f"SELECT error FROM {Place(pair[1]).named('executions')}")]
    assert sorted(errors, key=str) == sorted([None] * 4 + [""] * 2, key=str)


@pytest.mark.one_database
def test_a_target_with_rows_is_refused_and_stays_as_it_is(pair: Pair, clock: FrozenClock) -> None:
    filled(pair[0], clock)
    with opened(*pair) as (source, target):
        target.workflows.cron_overrides.set("nightly", enabled=False)
        before = rows_of(pair[1])
        with pytest.raises(Conflict, match="rows in cron_overrides; it must be empty") as error:
            copy(source, target)
    assert error.value.constraint == "cron_overrides"
    assert rows_of(pair[1]) == before


def test_a_copy_of_itself_is_refused(database_url: str, clock: FrozenClock) -> None:
    with opened(database_url, database_url) as (source, target), pytest.raises(InvalidValue, match="the source itself"):
        copy(source, target)


@pytest.mark.one_database
def test_an_empty_store_is_copied(pair: Pair) -> None:
    with opened(*pair) as (source, target):
        report = copy(source, target)
        assert {name for name, count in report.tables.items() if count} == SEEDED - {"_meta"}
        assert copy(source, target) == report  # what it left is empty still


def test_changed_seed_rows_replace_those_of_the_target(pair: Pair, clock: FrozenClock) -> None:
    filled(pair[0], clock)
    with opened(*pair) as (source, target):
        copy(source, target)
        with target.begin() as tx:  # goes on with the numbers of the source
            tx.conversations.exchange.send(sender="main", recipient="x", content=1, session_id="conv-2")
    last = [Place(url).ask(f"SELECT seq FROM {Place(url).named('exchange_cursors')} WHERE owner = ''") for url in pair]
    assert last[1][0][0] == last[0][0][0] + 1 > 1


@pytest.mark.one_database
def test_progress_counts_every_row_twice_and_the_whole_copy(pair: Pair, clock: FrozenClock) -> None:
    filled(pair[0], clock)
    seen: list[tuple[str, int, int]] = []
    with opened(*pair) as (source, target):
        report = copy(source, target, progress=lambda *told: seen.append(told))
    steps = [done for _, done, _ in seen]
    whole = 2 * sum(rows for table, rows in report.tables.items() if table != "_meta")
    assert (steps, steps[-1]) == (sorted(steps), whole)
    assert {total for _, _, total in seen} == {whole}
    assert {table for table, count in report.tables.items() if count} == {table for table, _, _ in seen}


@pytest.mark.one_database
def test_an_error_of_the_callback_undoes_the_copy(pair: Pair, clock: FrozenClock) -> None:
    filled(pair[0], clock)

    def stop(table: str, done: int, total: int) -> None:
        if table == "workflow_runs":
            raise KeyboardInterrupt

    with opened(*pair) as (source, target):
        with pytest.raises(KeyboardInterrupt):
            copy(source, target, progress=stop)
        assert copy(source, target).tables["workflow_runs"] == 15


@pytest.mark.one_server  # a trigger changes the row
def test_what_comes_back_changed_is_not_kept(pair: Pair, clock: FrozenClock) -> None:
    filled(pair[0], clock)
    with opened(*pair) as (source, target):
        place = Place(pair[1])
        if place.is_postgres:
            place.run(
                "CREATE FUNCTION lie() RETURNS trigger LANGUAGE plpgsql"
                " AS $$ BEGIN NEW.skill := NEW.skill || '!'; RETURN NEW; END $$",
                f"CREATE TRIGGER lie BEFORE INSERT ON {place.named('executions')} FOR EACH ROW EXECUTE FUNCTION lie()",
            )
        else:
            place.run(
                "CREATE TRIGGER lie AFTER INSERT ON executions BEGIN"
                " UPDATE executions SET skill = skill || '!' WHERE id = NEW.id; END"
            )
        with pytest.raises(StoreCorrupt, match="executions: the target gives back other values"):
            copy(source, target)
        if place.is_postgres:
            place.run(f"DROP TRIGGER lie ON {place.named('executions')}", "DROP FUNCTION lie")
        else:
            place.run("DROP TRIGGER lie")
        copy(source, target)


def test_tables_of_others_are_named_and_left_out(sqlite_url: str, target_url: str) -> None:
    with opened(sqlite_url, target_url) as (source, target):
        Place(sqlite_url).run("CREATE TABLE mine (x)", "CREATE TABLE also (x)")
        assert copy(source, target).left_out == ("also", "mine")


def test_rows_that_refer_to_nothing_are_refused(sqlite_url: str, target_url: str) -> None:
    with opened(sqlite_url, target_url) as (source, target):
        Place(sqlite_url).run(
            'INSERT INTO chat_parts (id, message_id, session_id, "index", type, created_at, updated_at, data_json)'
            " VALUES ('p', 'gone', 's', 0, 'text', 1, 1, '{}')"
        )
        with pytest.raises(Conflict, match="chat_parts"):
            copy(source, target)
    assert rows_of(target_url)["chat_parts"] == 0


def test_a_database_of_a_newer_persist_is_refused(sqlite_url: str, target_url: str) -> None:
    Store.open(sqlite_url).close()
    Place(sqlite_url).run("UPDATE _meta SET value = '9999' WHERE key = 'schema_version'")
    with Store.open(sqlite_url, read_only=True) as source, Store.open(target_url) as target, pytest.raises(SchemaTooNew):
        copy(source, target)


def test_an_engine_of_the_callers_is_refused(sqlite_url: str, target_url: str) -> None:
    Store.open(sqlite_url).close()
    engine = create_engine(sqlite_url)
    try:
        with Store.from_engine(engine) as source, Store.open(target_url) as target, pytest.raises(UnsupportedEngine):
            copy(source, target)
    finally:
        engine.dispose()


def test_a_damaged_file_is_refused_with_a_sentence(sqlite_url: str, target_url: str, clock: FrozenClock) -> None:
    filled(sqlite_url, clock)
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'workflow_runs'").fetchone()
        (size,) = raw.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(os.urandom(size))
    with opened(target_url) as (target,), Store.open(sqlite_url, read_only=True) as source, pytest.raises(PersistError):
        copy(source, target)
    assert rows_of(target_url)["workflow_runs"] == 0


@pytest.mark.one_database
def test_writers_go_on_meanwhile(pair: Pair, clock: FrozenClock) -> None:
    """The copy is what was there when it began."""
    filled(pair[0], clock)
    with opened(pair[0], *pair) as (writer, source, target):
        written: list[str] = []

        def write(table: str, done: int, total: int) -> None:
            if table == "agents" and not written:
                written.append(table)
                writer.workflows.runs.create("late", trigger_id="t", current_phase="p")

        before = transcript(source)
        copy(source, target, progress=write)
        assert transcript(target) == before
        assert transcript(source) != before


def test_nobody_writes_to_the_target_meanwhile(pair: Pair, new_postgres_database: Callable[..., str]) -> None:
    place = Place(pair[1])
    with opened(*pair) as (source, target):
        refused: list[Exception] = []

        def write(table: str, done: int, total: int) -> None:
            if refused:
                return
            try:
                if place.is_postgres:
                    with psycopg.connect(pair[1], options="-c lock_timeout=50") as raw:
                        raw.execute(f"INSERT INTO {place.named('workflow_overrides')} VALUES ('x', true, now(), NULL)".encode())
                else:
                    with closing(sqlite3.connect(place.path, timeout=0.05)) as lite:
                        lite.execute("INSERT INTO workflow_overrides VALUES ('x', 1, '2026-01-01', NULL)")
            except (psycopg.errors.LockNotAvailable, sqlite3.OperationalError) as error:
                refused.append(error)

        copy(source, target, progress=write)
    assert len(refused) == 1
