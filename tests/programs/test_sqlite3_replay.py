"""The statements published for the sqlite3 command line, run as they are against a run file, and what the library then reads."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import persist
from persist import Store
from persist.programs import audit, open_run_file
from tests.command_line import Sqlite3
from tests.programs import published


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
    """14"""
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
    assert [programs.bindings.resolve(run, "result", execution_id=frame).value for frame in (43, 42, None)] == [
        "of 43",
        "of 42",
        "of NULL",
    ]
    assert programs.bindings.resolve(run, "full_report").value == "the report"
    assert {one.run_id for one in point.bindings} == {run}
    assert programs.agents.segments(run, "captain")[0].segment_number == 3
    assert {one.code for one in audit(run_file, run)} == {"status_not_ours", "raw_write"}


def test_a_value_written_twice_raw_and_once_by_the_library(told: Any, run_file: Store, run: str, raw: sqlite3.Connection) -> None:
    """15"""
    for value in ("one", "two"):
        told(published.BIND.format(name="research", frame="NULL", value=value))
    assert raw.execute("SELECT value FROM bindings").fetchall() == [("two",)]
    raw.execute("UPDATE bindings SET created_at = '2020-01-01 00:00:00'")
    told(published.EXTENSIONS[1])
    raw.execute("UPDATE bindings SET token_count = 7")
    bound = run_file.programs.bindings.bind(run, "research", "three")
    assert (bound.value, bound.created_at.year if bound.created_at else 0) == ("three", 2020)
    assert raw.execute("SELECT value, token_count, created_at FROM bindings").fetchall() == [("three", 7, "2020-01-01 00:00:00")]


def test_extensions_survive_an_upgrade(told: Any, run_file: Store, run: str, file: Path, raw: sqlite3.Connection) -> None:
    """23"""
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
