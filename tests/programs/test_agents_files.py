"""Files of agents that outlive runs: handles and audits work there as they do in a run's own file."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue, NotFound
from persist.maintenance import doctor
from persist.programs import agents_file, audit, create_run_file, instructions_for_subagent, subagent

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
