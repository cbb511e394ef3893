"""Copying between databases: everything arrives, is compared, and is what it was."""

import os
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine

from persist import Store
from persist.errors import Conflict, CopyUnfinished, InvalidValue, PersistError, SchemaTooNew, StoreCorrupt, UnsupportedEngine
from persist.maintenance import copy, copy_resumably
from persist.single_owner_files import create_run_file, open_instance, open_workspace
from persist.testing import FrozenClock
from tests.cases import each
from tests.maintenance.filled import filled
from tests.maintenance.moving import CROSSING, Pair, many, new_url, opened
from tests.schema.filling import transcript
from tests.schema.places import Place

SEEDED = {"_meta", "message_types", "exchange_cursors"}


WAYS: dict[str, Callable[[Store, Store, str], Any]] = {
    "copy": lambda source, target, url: copy(source, target),
    "steps": lambda source, target, url: copy_resumably(source, url),
}
"""At once, and in steps that can be resumed."""
ways = pytest.mark.parametrize("way", WAYS)


def rows_of(url: str) -> dict[str, int]:
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


@ways
@pytest.mark.one_database
def test_a_target_with_rows_is_refused_and_stays_as_it_is(pair: Pair, clock: FrozenClock, way: str) -> None:
    filled(pair[0], clock)
    with opened(*pair) as (source, target):
        target.workflows.cron_overrides.set("nightly", enabled=False)
        before = rows_of(pair[1])
        with pytest.raises(Conflict, match="rows in cron_overrides; it must be empty") as error:
            WAYS[way](source, target, pair[1])
    assert error.value.constraint == "cron_overrides"
    assert rows_of(pair[1]) == before
    Store.open(pair[1]).close()


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


@ways
@pytest.mark.one_server  # a trigger changes the row
def test_what_comes_back_changed_is_not_kept(pair: Pair, clock: FrozenClock, way: str) -> None:
    filled(pair[0], clock)
    with opened(*pair) as (source, target):
        place = Place(pair[1])
        named, once = place.named("executions"), "WHEN (NEW.skill NOT LIKE '%!')"
        if place.is_postgres:
            place.run(
                "CREATE FUNCTION lie() RETURNS trigger LANGUAGE plpgsql"
                " AS $$ BEGIN NEW.skill := NEW.skill || '!'; RETURN NEW; END $$",
                f"CREATE TRIGGER lie BEFORE INSERT OR UPDATE ON {named} FOR EACH ROW {once} EXECUTE FUNCTION lie()",
            )
            honest = [f"DROP TRIGGER lie ON {named}", "DROP FUNCTION lie"]
        else:
            change = f"{once} BEGIN UPDATE executions SET skill = skill || '!' WHERE id = NEW.id; END"
            place.run(*(f"CREATE TRIGGER lie_{when} AFTER {when} ON executions {change}" for when in ("INSERT", "UPDATE")))
            honest = ["DROP TRIGGER lie_INSERT", "DROP TRIGGER lie_UPDATE"]
        with pytest.raises(StoreCorrupt, match="executions: the target gives back other values"):
            WAYS[way](source, target, pair[1])
        place.run(*honest)
        WAYS[way](source, target, pair[1])


@ways
def test_rows_that_refer_to_nothing_are_refused(pair: Pair, way: str) -> None:
    """As another program leaves them that looks at no foreign key."""
    many(pair[0], 3)
    place = Place(pair[0])
    replica = ["SET session_replication_role = replica"] if place.is_postgres else []
    place.run(*replica, f"DELETE FROM {place.named('messaging_sessions')}")
    with opened(*pair) as (source, target), pytest.raises(Conflict, match="messaging_messages" if way == "copy" else "."):
        WAYS[way](source, target, pair[1])
    if way == "copy":
        assert rows_of(pair[1])["messaging_messages"] == 0
    else:
        with pytest.raises(CopyUnfinished):
            Store.open(pair[1])


@ways
def test_sources_that_are_refused(sqlite_url: str, new_file: Callable[[], str], clock: FrozenClock, way: str) -> None:
    """Itself, an engine of the caller's, a file that is damaged, and one of a newer persist."""
    place, there = filled(sqlite_url, clock), new_file()
    engine = create_engine(sqlite_url)
    with opened(there) as (target,):
        with opened(sqlite_url, sqlite_url) as (source, same), pytest.raises(InvalidValue) as error:
            WAYS[way](source, same, sqlite_url)
        assert error.value.path == "target"
        with Store.from_engine(engine) as source, pytest.raises(UnsupportedEngine):
            WAYS[way](source, target, there)
        engine.dispose()
        with closing(sqlite3.connect(place.path)) as raw:
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'workflow_runs'").fetchone()
            (size,) = raw.execute("PRAGMA page_size").fetchone()
        good = place.path.read_bytes()
        place.path.write_bytes(good[: (page - 1) * size] + os.urandom(size) + good[page * size :])
        with Store.open(sqlite_url, read_only=True) as source, pytest.raises(PersistError):
            WAYS[way](source, target, there)
        assert rows_of(there)["workflow_runs"] == 0
        place.path.write_bytes(good)
        place.run("UPDATE _meta SET value = '9999' WHERE key = 'schema_version'")
        with Store.open(sqlite_url, read_only=True) as source, pytest.raises((SchemaTooNew, InvalidValue)):
            WAYS[way](source, target, there)


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


# Memory, and whose rows they are.


def peak(source_url: str, target_url: str, rows: int) -> int:
    """Bytes of Python's own at the highest, while so many rows are copied."""
    many(source_url, rows)
    with opened(source_url, target_url) as (source, target):
        tracemalloc.start()
        try:
            assert copy(source, target).tables["messaging_messages"] == rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("kinds", CROSSING)
def test_memory_does_not_grow_with_the_rows(request: pytest.FixtureRequest, tmp_path: Path, kinds: str) -> None:
    peaks = []
    for rows in (1_000, 4_000, 16_000):  # the first one pays for what is made once
        urls = [new_url(request, kind, tmp_path, f"{number}-{rows}.db") for number, kind in enumerate(kinds.split("-"))]
        peaks.append(peak(urls[0], urls[1], rows))
    assert peaks[2] < peaks[1] * 1.25
    assert peaks[2] < 16 * 2**20


def test_memory_is_that_of_few_rows_where_rows_are_large(sqlite_url: str, tmp_path: Path) -> None:
    Store.open(sqlite_url).close()
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as raw, raw:
        for number in range(80):
            raw.execute(
                "INSERT INTO messages (id, created_at, role, content, embedding) VALUES (?, 1.0, 'user', '{}', ?)",
                (f"m{number}", bytes(2**20)),
            )
    with opened(sqlite_url, f"sqlite:///{tmp_path / 'target.db'}") as (source, target):
        tracemalloc.start()
        try:
            copy(source, target)
            assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
        finally:
            tracemalloc.stop()


def test_a_run_file_becomes_a_run_of_many(postgres_url: str, tmp_path: Path) -> None:
    with create_run_file(tmp_path, program_source="say hello") as run:
        run_id = run.run_id
        assert run_id is not None
        with run.begin() as tx:
            block = tx.programs.executions.begin(run_id, statement_index=1, statement_text="parallel:")
            inner = tx.programs.executions.begin(run_id, statement_index=2, statement_text="x", parent_id=block.id)
            tx.programs.bindings.bind(run_id, "goal", "ship", execution_id=inner.id)
            tx.programs.agents.start(run_id, "captain", resume=False)
        assert run.path is not None
        raw = Place(f"sqlite:///{run.path}")
        assert raw.ask("SELECT DISTINCT run_id FROM execution") == [("",)]
        with Store.open(postgres_url) as many:
            copy(run, many)
            with many.read() as tx, run.read() as own:
                assert tx.programs.executions.list(run_id) == own.programs.executions.list(run_id)
                assert tx.programs.bindings.list(run_id) == own.programs.bindings.list(run_id)
                assert tx.programs.agents.list(run_id) == own.programs.agents.list(run_id)
            assert many.run_id is None
            assert many.programs.executions.begin(run_id, statement_index=3, statement_text="y").id > inner.id
        with Store.open(f"sqlite:///{tmp_path / 'again.db'}") as again:  # between files it stays that run's own file
            copy(run, again)
            assert again.run_id == run_id
            with again.read() as tx, run.read() as own:
                assert tx.programs.executions.list(run_id) == own.programs.executions.list(run_id)
        assert Place(f"sqlite:///{tmp_path / 'again.db'}").rows("execution", "_meta") == raw.rows("execution", "_meta")


def test_files_of_instances_and_workspaces(new_postgres_database: Callable[[], str], tmp_path: Path, clock: FrozenClock) -> None:
    with open_instance(tmp_path, "box-1", clock=clock) as box:
        box.telemetry.status.record("idle")
        with Store.open(new_postgres_database()) as target:
            copy(box, target)
            assert [one.new_status for one in target.telemetry.status.history(instance_id="box-1")] == ["idle"]
    with open_workspace(tmp_path / "tasks.db", "project") as workspace, Store.open(new_postgres_database()) as target:
        workspace.telemetry.tasks.poll([{"id": "t", "source_id": "s", "kind": "issue", "title": "x", "labels": [], "links": []}])
        copy(workspace, target)
        assert [task.id for task in target.telemetry.tasks.list(workspace_id="project")] == ["t"]


def raw_status(url: str) -> None:
    """As the sqlite3 command line writes it, which knows nothing of instances."""
    Store.open(url).close()
    Place(url).run("INSERT INTO status_log (occurred_at, new_status) VALUES (1, 'idle')")


def test_rows_that_nobody_says_whose_they_are(sqlite_url: str, postgres_url: str) -> None:
    raw_status(sqlite_url)
    with opened(sqlite_url, postgres_url) as (source, target):
        with pytest.raises(InvalidValue, match=r"does not say whose it is\. Say it: .*--instance-id") as error:
            copy(source, target)
        assert error.value.path == "status_log.instance_id"
        copy(source, target, scopes={"instance_id": "box-2"})
        assert [one.new_status for one in target.telemetry.status.history(instance_id="box-2")] == ["idle"]


def test_between_files_nobody_has_to_say(sqlite_url: str, tmp_path: Path) -> None:
    raw_status(sqlite_url)
    last = f"sqlite:///{tmp_path / 'last.db'}"
    with opened(sqlite_url, last) as (source, target):
        copy(source, target)
    assert Place(last).rows("status_log") == Place(sqlite_url).rows("status_log")


@each("scopes", [{"instance_id": "another"}, {"session_id": "x"}, {"run_id": ""}, {"run_id": "a\x00"}])
def test_scopes_that_cannot_be(tmp_path: Path, sqlite_url: str, scopes: dict[str, str]) -> None:
    with open_instance(tmp_path, "box-1") as box, Store.open(sqlite_url) as target, pytest.raises(InvalidValue):
        copy(box, target, scopes=scopes)


def test_two_runs_with_the_same_numbers_do_not_fit_into_one_file(postgres_url: str, sqlite_url: str) -> None:
    with opened(postgres_url, sqlite_url) as (source, target):
        with source.begin() as tx:
            for run_id in ("run-1", "run-2"):
                tx.programs.runs.create(program_path="p", id=run_id)
        execution = Place(postgres_url).named("execution")
        for run_id in ("run-1", "run-2"):
            Place(postgres_url).run(f"INSERT INTO {execution} (id, run_id, statement_index) VALUES (1, '{run_id}', 1)")
        with pytest.raises(Conflict, match="execution: several rows have the same id, each within its own run_id"):
            copy(source, target)
