"""Strict run files: a shell may write values and memories, and nothing of what is the virtual machine's."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

import persist
from persist import Store
from persist.errors import Conflict
from persist.maintenance import backup, copy, doctor, prune
from persist.programs import audit, create_run_file, instructions_for_subagent, list_run_files, open_run_file
from persist.store.transaction import work_of
from persist.testing import FrozenClock
from tests.command_line import Sqlite3
from tests.markdown import ROOT
from tests.programs import published
from tests.programs.test_instructions import commands, filled
from tests.subprocesses import Worker

REFUSED = "this run is strict, and nobody but persist writes to run, execution and imports"
VM = [
    published.STATEMENT,
    published.PARALLEL,
    published.BRANCH_DONE.replace("'p1'", "NULL").replace("= NULL", "IS NULL").replace("= 'a'", "IS NULL"),
    "UPDATE execution SET status = 'completed'",
    "UPDATE OR IGNORE execution SET parent_id = id",
    "INSERT OR REPLACE INTO execution (id, statement_text) VALUES (1, 'other')",
    "DELETE FROM execution",
    "UPDATE run SET status = 'completed'",
    "INSERT INTO run (id) VALUES ('another')",
    "DELETE FROM run",
    "INSERT OR IGNORE INTO imports (alias) VALUES ('x')",
    "UPDATE imports SET source_url = 'other'",
    "DELETE FROM imports",
    "UPDATE _meta SET key = 'lax' WHERE key = 'strict'",
    "DELETE FROM _meta",
]


@pytest.fixture
def strict(tmp_path: Path, clock: FrozenClock) -> Iterator[Store]:
    with create_run_file(tmp_path, program_source="session 'hi'", strict=True, clock=clock) as store:
        assert store.run_id is not None
        with store.begin() as tx:
            tx.programs.executions.begin(store.run_id, statement_index=1, statement_text="x", metadata={"a": 1})
            tx.programs.imports.add(store.run_id, "lib", source_url="lib.prose")
            tx.programs.agents.start(store.run_id, "captain", resume=False)
        yield store


def everything(path: Path | None) -> dict[str, list[tuple[object, ...]]]:
    assert path is not None
    with closing(sqlite3.connect(path)) as raw:
        return {name: raw.execute(f"SELECT * FROM {name}").fetchall() for name in ("run", "execution", "imports", "_meta")}


@pytest.mark.parametrize("sql", VM)
def test_a_shell_does_not_do_the_machines_part(sqlite3_shell: Sqlite3, strict: Store, sql: str) -> None:
    assert strict.path is not None
    assert strict.run_id is not None
    before = everything(strict.path)
    told = sqlite3_shell.run(strict.path, sql, "-bail")
    assert told.returncode != 0
    assert REFUSED in told.stderr
    assert everything(strict.path) == before
    assert audit(strict, strict.run_id) == []


def test_a_subagents_commands_run_as_ever(sqlite3_shell: Sqlite3, strict: Store) -> None:
    assert strict.path is not None
    assert strict.run_id is not None
    for sql in (published.BIND.format(name="x", frame="1", value="v"), published.LARGE, published.REMEMBER, published.SEGMENT):
        told = sqlite3_shell.run(strict.path, sql, "-bail")
        assert (told.returncode, told.stderr) == (0, "")
    line = filled(commands(instructions_for_subagent(strict, strict.run_id, binding="result"))[0], value="of a shell")
    assert sqlite3_shell.shell(line).returncode == 0
    assert strict.programs.bindings.resolve(strict.run_id, "result").value == "of a shell"


def test_the_library_does_everything_in_any_process(strict: Store, clock: FrozenClock) -> None:
    """The mark is no connection's, and is never left behind."""
    assert strict.path is not None
    with open_run_file(strict.path, clock=clock) as other:
        other.switch_events(True)
        strict.transact(lambda tx: tx.programs.runs.seen(str(strict.run_id)))
        for store in (strict, other, strict):
            assert store.run_id is not None
            id = store.programs.executions.begin(store.run_id, statement_index=2, statement_text="y").id
            store.programs.executions.complete(store.run_id, id)
            assert doctor(store, fix=True) == []
            prune(store, "programs", older_than=timedelta(days=1))
        with pytest.raises(Conflict), other.begin() as tx:
            tx.programs.runs.create(id=strict.run_id)
        other.programs.runs.finish(str(strict.run_id), "interrupted")
    kept = {"schema_version", "run_id", "strict", "events", "events_snapshots"}
    assert {row[0] for row in everything(strict.path)["_meta"]} == kept
    assert audit(strict, str(strict.run_id)) == []


def test_a_hosts_transaction_is_marked_for_each_verb_only(strict: Store) -> None:
    assert strict.path is not None
    engine = create_engine(f"sqlite:///{strict.path.as_posix()}")
    with engine.begin() as connection:
        tx = strict.join(connection)
        id = tx.programs.executions.begin(str(strict.run_id), statement_index=2, statement_text="y").id
        with pytest.raises(Exception, match=REFUSED):
            connection.exec_driver_sql("UPDATE execution SET status = 'failed'")
        tx.programs.executions.complete(str(strict.run_id), id)
    engine.dispose()
    assert audit(strict, str(strict.run_id)) == []


def test_a_rolled_back_transaction_leaves_no_mark(strict: Store, sqlite3_shell: Sqlite3) -> None:
    def fails() -> None:
        with strict.begin() as tx:
            assert work_of(tx).writable
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        fails()
    assert strict.path is not None
    assert sqlite3_shell.run(strict.path, "UPDATE run SET status = 'failed'").returncode != 0


def test_copies_and_backups_are_strict_too(strict: Store, tmp_path: Path, sqlite3_shell: Sqlite3) -> None:
    with Store.open(f"sqlite:///{(tmp_path / 'copy.db').as_posix()}") as target:
        copy(strict, target)
        assert target.run_id is not None
        target.programs.executions.begin(target.run_id, statement_index=3, statement_text="z")
        assert audit(target, target.run_id) == []
    backup(strict, tmp_path / "backup.db")
    for path in (tmp_path / "copy.db", tmp_path / "backup.db"):
        assert REFUSED in sqlite3_shell.run(path, "DELETE FROM execution").stderr
        with open_run_file(path) as store:
            assert store.run_id is not None
            store.programs.executions.begin(store.run_id, statement_index=3, statement_text="z")
            assert audit(store, store.run_id) == []


def test_an_audit_tells_of_a_mark_that_was_left_and_of_triggers_that_were_taken_away(
    strict: Store, sqlite3_shell: Sqlite3
) -> None:
    assert strict.path is not None
    assert strict.run_id is not None
    for sql, subject in (
        ("INSERT INTO _meta VALUES ('writer', 'me')", "_meta writer"),
        (
            "DELETE FROM _meta WHERE key = 'writer'; DROP TRIGGER persist_row_guard_strict_run_update",
            "trigger persist_row_guard_strict_run_update",
        ),
    ):
        assert sqlite3_shell.run(strict.path, sql).returncode == 0
        assert [(one.code, one.subject) for one in audit(strict, strict.run_id)] == [("guard_missing", subject)]


def test_other_run_files_are_not_strict(run_file: Store, file: Path, sqlite3_shell: Sqlite3) -> None:
    assert sqlite3_shell.run(file, published.STATEMENT).returncode == 0
    assert [row[0] for row in everything(file)["_meta"]] == ["schema_version", "run_id"]


Program = Callable[..., subprocess.CompletedProcess[str]]

VALUES = ["draft = draft 3", "review = It's thorough; `costs` nothing.", "survey = Three approaches are known."]
STATES = {
    "parallel:": "completed",
    "survey": "completed",
    "review": "completed",
    "rumour": "failed",
    "loop until **good enough** (max: 3):": "completed",
}


@pytest.fixture
def program(sqlite3_shell: Sqlite3, tmp_path: Path) -> Program:
    """`program("--crash-at", …)` runs it until it ends or kills itself."""
    line = [sys.executable, str(ROOT / "examples" / "program.py"), "--root", str(tmp_path)]
    return lambda *args: sqlite3_shell.start([*line, *args])


@pytest.fixture
def forked(sqlite3_shell: Sqlite3, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """`forked("--crash-at", …)` does as `program` does, for many starts: forked from a process that has loaded persist."""
    errors = tmp_path_factory.mktemp("said") / "errors"

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        line = [sqlite3_shell.env["PATH"], errors, "--root", tmp_path, *args]
        with Worker("tests.programs.example_worker", *line) as worker:
            said, _ = worker.communicate(timeout=60)
        return subprocess.CompletedProcess(worker.args, worker.wait(), said, errors.read_text(encoding="utf-8"))

    return run


def assert_it_goes_on(program: Program, root: Path, step: str) -> None:
    killed = program("--crash-at", step)
    assert (killed.returncode, killed.stderr) == (-signal.SIGKILL, "")
    run = killed.stdout.split()[1]
    ended = program()
    assert (ended.returncode, ended.stderr) == (0, "")
    first, *lines = ended.stdout.splitlines()
    assert first == f"resuming {run}"
    assert lines[-3:] == VALUES
    before = [said for said in killed.stdout.splitlines()[1:] if said.startswith(("survey", "review", "rumour", "loop"))]
    assert not set(before) & set(lines)  # nothing that was done is done again
    (path,) = list_run_files(root)
    with open_run_file(path) as store, store.read() as tx:
        executions = tx.programs.executions.list(run)
        assert {one.statement_text: one.status for one in executions} == STATES
        assert len(executions) == len(STATES)
        assert tx.programs.runs.get(run).status == "completed"
    with open_run_file(path) as store:
        assert {one.code for one in audit(store, run)} <= {"raw_write"}  # what subagents wrote by a shell
    assert program().stdout.startswith("starting ")


def test_a_killed_program_goes_on(program: Program, tmp_path: Path) -> None:
    assert_it_goes_on(program, tmp_path, "review")


@pytest.mark.parametrize("step", ["survey", "review", "rumour", "join", "loop", "end"])
def test_killed_at_every_step_it_goes_on(forked: Program, tmp_path: Path, step: str) -> None:
    assert_it_goes_on(forked, tmp_path, step)


# The statements published for the sqlite3 command line, run as they are against a run file, and what the library then reads.


@pytest.fixture(params=["OFF", "ON"])
def told(request: pytest.FixtureRequest, sqlite3_shell: Sqlite3, file: Path) -> Any:
    """`told(sql)`: the rows that the command line gives, with foreign keys off as they are there, and on."""

    def run(sql: str) -> list[dict[str, Any]]:
        done = sqlite3_shell.run(file, f"PRAGMA foreign_keys={request.param};\n{sql}", "-bail", "-json")
        assert (done.returncode, done.stderr) == (0, ""), (sql, done)
        rows: list[dict[str, Any]] = json.loads(done.stdout) if done.stdout else []
        return rows

    return run


def test_the_whole_session(told: Any, run_file: Store, run: str, file: Path) -> None:
    for statement in published.SCHEMA:
        told(statement)
    run_file.programs.agents.start(run, "captain", resume=False)

    # the virtual machine: a statement, a parallel block, a loop, a failure that is tried again
    told(published.STATEMENT)
    told(published.PARALLEL)
    block = told("SELECT max(id) AS id FROM execution")[0]["id"]
    for name in "abc":
        told(published.BRANCH.format(name=name, parent=block))
    told(published.BRANCH_DONE)
    assert [row["status"] for row in told(published.BRANCH_STATES)] == ["executing", "completed", "executing", "executing"]
    assert told(published.PENDING) == [{"pending": 3}]  # it counts the block itself
    told(published.LOOP)
    told(published.ITERATION)
    told(published.FAILURE.format(id=block + 3))
    told(published.RETRY.format(id=block + 3))

    # subagents: values in the root and in frames, written twice; a large one; memory and a segment
    for value in ("first", "Anthropic''s survey"):
        told(published.BIND.format(name="research", frame="NULL", value=value))
    assert told(published.READ) == [{"value": "Anthropic's survey"}]
    told("UPDATE sqlite_sequence SET seq = 41 WHERE name = 'execution'")
    told(published.STATEMENT)
    told(published.BRANCH.format(name="d", parent=42).replace('"p1"', '"p9"'))
    for frame in ("NULL", "42", "43"):
        told(published.BIND.format(name="result", frame=frame, value=f"of {frame}"))
    assert told(published.SCOPE.format(name="result", frame=43))[0]["value"] == "of 43"
    assert told(published.SCOPE.format(name="research", frame=43))[0]["value"] == "Anthropic's survey"
    assert told(published.KNOWN_SCOPE)[0]["value"] == "of 43"
    told(published.LARGE)
    assert told(published.MEMORY) == [{"memory": None}]
    told(published.REMEMBER)
    told(published.SEGMENT)
    for statement in published.EXTENSIONS:
        told(statement)
    told("INSERT INTO x_metrics (execution_id, metric_name, metric_value) VALUES (42, 'tokens', 12.5)")
    told("UPDATE bindings SET token_count = 7 WHERE name = 'result'")

    # resuming, by the same command line
    assert told(published.POSITION)[0]["statement_index"] == 6
    assert len(told(published.ALL_BINDINGS)) == 5
    assert told(published.ALL_MEMORIES) == [{"name": "captain", "memory": "the plan"}]
    assert [row["branch"] for row in told(published.BLOCK)] == ["a", "b", "c"]

    # and by the library
    (file.parent / "attachments").mkdir()
    (file.parent / "attachments" / "full_report.md").write_text("the report")
    programs = run_file.programs
    point = programs.runs.resume_point(run)
    assert [one.statement_index for one in point.executing] == [6, 3, 10, 6, 5, 3]
    assert [(one.strategy, one.branches) for one in point.parallel] == [
        ("all", {"a": "completed", "b": "executing", "c": "failed"})
    ]
    assert [(one.current_iteration, one.max_iterations) for one in point.loops] == [(2, 5)]
    assert programs.executions.pending_branches(run, "p1") == 1
    failed = programs.executions.list(run, status="failed")
    assert [(one.error_message, one.metadata["retry_attempt"]) for one in failed] == [("Connection timeout after 30s", 2)]
    found = [programs.bindings.resolve(run, "result", execution_id=frame).value for frame in (43, 42, None)]
    assert found == ["of 43", "of 42", "of NULL"]
    assert programs.bindings.resolve(run, "full_report").value == "the report"
    assert {one.run_id for one in point.bindings} == {run}
    assert programs.agents.segments(run, "captain")[0].segment_number == 3
    assert {one.code for one in audit(run_file, run)} == {"status_not_ours", "raw_write"}


def test_extensions_survive_an_upgrade(told: Any, run_file: Store, run: str, file: Path, raw: sqlite3.Connection) -> None:
    for statement in published.EXTENSIONS:
        told(statement)
    told("INSERT INTO x_metrics (metric_name, metric_value) VALUES ('tokens', 1)")
    run_file.close()
    raw.execute("UPDATE _meta SET value = '0003' WHERE key = 'schema_version'")  # as if an older one had opened it last
    with open_run_file(file) as store, store.begin() as tx:
        assert store.run_id == run
        tx.programs.bindings.bind(run, "x", "1")
    persist.upgrade(f"sqlite:///{file.as_posix()}")
    assert told("SELECT metric_value FROM x_metrics") == [{"metric_value": 1.0}]
    assert told("SELECT token_count FROM bindings") == [{"token_count": None}]
    assert told("SELECT name FROM sqlite_master WHERE name = 'idx_execution_status'")
    with open_run_file(file) as store:
        assert audit(store, run) == []


def test_tables_that_are_no_extensions_are_found(told: Any, run_file: Store, run: str) -> None:
    told("CREATE TABLE notes (text TEXT)")
    told(published.EXTENSIONS[0])
    assert [(one.code, one.subject) for one in audit(run_file, run)] == [("unexpected_table", "table notes")]


@pytest.mark.parametrize("statement", published.SCHEMA[2:3])
def test_the_schema_that_cannot_make_its_tables_is_harmless_where_they_are(
    sqlite3_shell: Sqlite3, file: Path, statement: str
) -> None:
    assert sqlite3_shell.run(file, statement).returncode == 0
    elsewhere = file.with_name("elsewhere.db")
    assert "PRIMARY KEY" in sqlite3_shell.run(elsewhere, statement).stderr
