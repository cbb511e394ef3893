"""Files of agents that outlive runs: handles and audits work there as they do in a run's own file."""

import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.errors import Conflict, InvalidValue, NotFound, ReadOnlyTransaction
from persist.maintenance import doctor
from persist.programs import (
    agents_file,
    audit,
    create_run_file,
    instructions_for_subagent,
    list_run_files,
    open_run_file,
    subagent,
)

OTHER = {"project": "user", "user": "project"}


@pytest.fixture(params=["project", "user"])
def scope(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return str(request.param)


@pytest.fixture
def crew(scope: Any, tmp_path: Path) -> Iterator[Store]:
    with agents_file(scope, tmp_path) as store:
        yield store


def test_a_handle_remembers(crew: Store, scope: str) -> None:
    helper = subagent(crew, scope)
    assert helper.agents.recall("captain") is None
    assert helper.agents.remember("captain", "the plan", scope=scope).memory == "the plan"
    assert helper.agents.add_segment("captain", prompt="p", summary="s").segment_number == 1
    assert [one.run_id for one in helper.agents.segments("captain")] == [scope]
    assert subagent(crew, scope).agents.recall("captain") == helper.agents.recall("captain")
    assert audit(crew, scope) == []
    assert doctor(crew) == []


def test_a_handle_has_no_values_and_no_frames(crew: Store, scope: str) -> None:
    helper = subagent(crew, scope)
    assert helper.bindings.get("x") is None
    with pytest.raises(NotFound):
        helper.bindings.bind("x", "1")
    with pytest.raises(NotFound):
        helper.bindings.resolve("x")
    with pytest.raises(NotFound):
        subagent(crew, scope, 1)
    with pytest.raises(NotFound):
        instructions_for_subagent(crew, scope)


def test_the_others_agents_are_not_there(crew: Store, scope: str, tmp_path: Path) -> None:
    with create_run_file(tmp_path) as run:
        for store, id in ((crew, OTHER[scope]), (crew, "run"), (run, scope)):
            with pytest.raises(NotFound) as caught:
                subagent(store, id)
            assert (caught.value.kind, caught.value.id) == ("program run", id)
            with pytest.raises(NotFound):
                audit(store, id)
            with pytest.raises(NotFound), store.begin() as tx:
                tx.programs.agents.remember(id, "captain", "m")


@pytest.mark.parametrize("id", ["", None, 3, ["project"], "a\x00b"])
def test_no_name_at_all_is_said(crew: Store, id: Any) -> None:
    for use in (subagent, audit):
        with pytest.raises(InvalidValue):
            use(crew, id)


def test_an_audit_finds_what_a_shell_did(crew: Store, scope: str) -> None:
    helper = subagent(crew, scope)
    helper.agents.remember("captain", "m")
    helper.agents.add_segment("captain", prompt="p", summary="s")
    assert crew.path is not None
    (crew.path.parent / "attachments").mkdir()
    (crew.path.parent / "attachments" / "whose.md").write_text("nobody's business")
    with sqlite3.connect(crew.path) as raw:
        raw.execute("UPDATE agents SET scope = 'world'")
        raw.execute("UPDATE agent_segments SET agent_name = 'mate'")
        raw.execute("INSERT INTO execution (statement_text, status) VALUES ('x', 'executing')")
        raw.execute("CREATE TABLE notes (x)")
    raw.close()
    found = [(one.code, one.subject) for one in audit(crew, scope) if one.code != "raw_write"]
    assert found == [
        ("status_not_ours", "execution 1"),
        ("unknown_word", "agent captain"),
        ("orphan", "segment 1"),
        ("unexpected_table", "table notes"),
    ]
    assert {one.code for one in doctor(crew)} >= {f"program_{code}" for code, _ in found}


# The audit of a run's file in a program that uses nothing else of persist.


_PROGRAM = """
import sys
from pathlib import Path
from persist.programs import audit, open_run_file

with open_run_file(Path(sys.argv[1])) as store:
    print(audit(store, store.run_id))
"""


def test_the_tables_of_the_other_domains_are_known(tmp_path: Path) -> None:
    with create_run_file(tmp_path) as store:
        path = store.path
    line = [sys.executable, "-c", _PROGRAM, str(path)]
    assert subprocess.run(line, check=True, capture_output=True, text=True, timeout=60).stdout == "[]\n"


# Run files and the files of agents: where they are, whose they are, what is stored in them.


def test_a_new_run_has_a_folder_of_its_own(tmp_path: Path, run_file: Store, run: str, file: Path) -> None:
    assert re.fullmatch(r"20260102-030405-[0-9a-z]{6}", run)
    assert file == tmp_path / ".prose" / "runs" / run / "state.db"
    assert file.with_name("program.prose").read_text() == "session 'hi'"
    row = run_file.programs.runs.get(run)
    assert (row.status, row.program_path, row.program_source) == ("running", "demo.prose", "session 'hi'")
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA page_size").fetchone() == (1024,)
    connection.close()


def test_what_is_the_files_own_has_no_scope_in_its_rows(run_file: Store, run: str, raw: sqlite3.Connection) -> None:
    with run_file.begin() as tx:
        tx.programs.runs.create(id="another")
        for id in (run, "another"):
            tx.programs.bindings.bind(id, "x", "1")
            tx.programs.executions.begin(id, statement_index=1, statement_text="x")
        assert [one.run_id for one in tx.programs.bindings.list(run)] == [run]
        assert [one.run_id for one in tx.programs.executions.list(run)] == [run]
    assert raw.execute("SELECT run_id FROM bindings ORDER BY run_id").fetchall() == [("",), ("another",)]
    assert raw.execute("SELECT run_id FROM execution ORDER BY run_id").fetchall() == [("",), ("another",)]


def test_the_source_is_read_from_its_path(tmp_path: Path) -> None:
    (tmp_path / "a.prose").write_text("let x = 1\n")
    with create_run_file(tmp_path, program_path="a.prose") as store, store.read() as tx:
        assert store.run_id is not None
        assert tx.programs.runs.get(store.run_id).program_source == "let x = 1\n"
    with create_run_file(tmp_path, program_path="registry/b") as store:
        assert store.path is not None
        assert not store.path.with_name("program.prose").exists()


def test_runs_of_one_second_differ_and_are_listed_in_order(tmp_path: Path) -> None:
    assert list_run_files(tmp_path) == []
    instants = [datetime(2026, 1, 16, 14, 30, 52 + second // 2, tzinfo=UTC) for second in range(6)]
    made = []
    for instant in instants:
        with create_run_file(tmp_path, now=instant) as store:
            made.append(store.path)
            assert str(store.run_id).startswith(f"{instant:%Y%m%d-%H%M%S}-")
    listed = list_run_files(tmp_path)
    assert set(listed) == set(made)
    assert len(set(made)) == 6
    assert [path.parent.name[:15] for path in listed] == sorted(f"{instant:%Y%m%d-%H%M%S}" for instant in instants)


def test_a_run_file_is_opened_by_its_path_or_its_folder(run_file: Store, run: str, file: Path) -> None:
    run_file.close()
    for path in (file, file.parent):
        with open_run_file(path) as store:
            assert (store.run_id, store.path) == (run, file)
    with Store.open(f"sqlite:///{file.as_posix()}") as store, store.read() as tx:
        assert store.run_id == run
        assert tx.programs.runs.get(run).id == run
    with open_run_file(file, read_only=True) as store, pytest.raises(ReadOnlyTransaction), store.begin():
        pass


def test_a_file_whose_run_was_not_noted_is_that_of_its_run(run_file: Store, run: str, file: Path) -> None:
    run_file.close()
    connection = sqlite3.connect(file)
    connection.execute("DELETE FROM _meta WHERE key = 'run_id'")
    connection.commit()
    connection.close()
    for read_only in (True, False, True):
        with open_run_file(file, read_only=read_only) as store, store.read() as tx:
            assert store.run_id == run
            assert tx.programs.runs.get(run).id == run


def test_opening_makes_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "state.db", tmp_path):
        with pytest.raises(NotFound):
            open_run_file(path)
    with pytest.raises(NotFound):
        create_run_file(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_agents_outlive_their_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for scope, path in (("project", tmp_path / "p" / ".prose"), ("user", tmp_path / "home" / ".prose")):
        for memory in ("one", "two"):
            with agents_file(scope, tmp_path / "p") as store:  # type: ignore[arg-type]  # both of its words
                assert (store.path, store.run_id) == (path / "agents.db", scope)
                with store.begin() as tx:
                    agent = tx.programs.agents.remember(scope, "captain", memory, scope=scope)
                    assert (agent.run_id, agent.memory) == (scope, memory)
    custom = tmp_path / "elsewhere" / "crew.db"
    with agents_file("project", tmp_path, path=custom) as store, store.read() as tx:
        assert store.path == custom
        assert tx.programs.agents.recall("project", "captain") is None
    with pytest.raises(Conflict):
        agents_file("user", tmp_path, path=custom)
    with pytest.raises(InvalidValue):
        agents_file("world", tmp_path)  # type: ignore[arg-type]  # what is refused here
