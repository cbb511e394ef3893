"""Copies that are killed, that are large, and of files that belong to one run, instance or workspace."""

import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from persist import Store
from persist.errors import Conflict, InvalidValue
from persist.maintenance import copy
from persist.single_owner_files import create_run_file, open_instance, open_workspace
from persist.testing import FrozenClock
from tests.cases import each
from tests.maintenance.moving import CROSSING, many, new_url, opened
from tests.schema.places import Place


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


# ---------------------------------------------------------------- whose rows they are


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
