"""What a subagent with a shell is told: its commands run as they are printed, wait for others, and no value breaks them."""

import re
import shlex
import sqlite3
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persist import Store
from persist.errors import InvalidValue, NotFound
from persist.programs import agents_file, create_run_file, instructions_for_subagent
from persist.programs.subagents.instructions import MEMORY, PROMPT, SUMMARY, VALUE, bind_sql, command
from tests.cases import each
from tests.command_line import Sqlite3

NASTY = (
    "it's \"quoted\" `touch owned` $(touch owned) \\ %s ; -- /* 報告 🦊\n.quit\n/\ngo\nEND_OF_SQL\n'; DROP TABLE bindings; --\n\n"
)


def commands(text: str) -> list[str]:
    """Every command of the instructions."""
    return [found[0] for found in re.finditer(r"^sqlite3 .*? <<'(\w+)'$.*?^\1$", text, flags=re.DOTALL | re.MULTILINE)]


def mark(line: str) -> str:
    """The word that ends the command."""
    return line.splitlines()[-1]


def filled(line: str, **values: str) -> str:
    for name, value in values.items():
        line = line.replace(
            {"value": VALUE, "summary": SUMMARY, "memory": MEMORY, "prompt": PROMPT}[name], value.replace("'", "''")
        )
    return line


@pytest.fixture
def frame(run_file: Store, run: str) -> int:
    with run_file.begin() as tx:
        outer = tx.programs.executions.begin(run, statement_index=1, statement_text="block process")
        return tx.programs.executions.begin(run, statement_index=2, statement_text="do", parent_id=outer.id).id


@pytest.mark.parametrize("in_frame", [False, True])
def test_the_commands_do_what_they_say(
    sqlite3_shell: Sqlite3, run_file: Store, run: str, file: Path, frame: int, in_frame: bool
) -> None:
    at = frame if in_frame else None
    run_file.programs.agents.start(run, "captain's", resume=False)
    text = instructions_for_subagent(run_file, run, at, binding="it's", kind="output", agent="captain's")
    assert str(file) in text
    assert (f"execution_id: {frame}" in text, "depth: 2" in text) == (in_frame, in_frame)
    bind, large, read, recall, remember, segment = commands(text)
    for line in (filled(bind, value=NASTY), filled(remember, memory=NASTY), filled(segment, prompt=NASTY, summary=NASTY)):
        done = sqlite3_shell.shell(line)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert '"memory":' in sqlite3_shell.shell(recall).stdout
    assert '"value":' in sqlite3_shell.shell(read.replace("NAME", "it''s")).stdout
    bound = run_file.programs.bindings.resolve(run, "it's", execution_id=at)
    agent = run_file.programs.agents.recall(run, "captain's")
    segments = run_file.programs.agents.segments(run, "captain's")
    assert (bound.value, bound.kind, bound.execution_id) == (NASTY, "output", at)
    assert agent is not None
    assert agent.memory == NASTY
    assert [(one.segment_number, one.prompt, one.summary) for one in segments] == [(1, NASTY, NASTY)]
    path = re.search(r"^  (/.*\.md)$", text, flags=re.MULTILINE)
    assert path is not None
    Path(path[1]).parent.mkdir()
    Path(path[1]).write_text("large")
    assert sqlite3_shell.shell(filled(large, summary="small")).returncode == 0
    stored = run_file.programs.bindings.get(run, "it's", execution_id=at)
    assert stored is not None
    assert (stored.value, stored.created_at) == ("small", bound.created_at)
    assert run_file.programs.bindings.resolve(run, "it's", execution_id=at).value == "large"
    assert not Path("owned").exists()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])))
def test_any_value_round_trips(sqlite3_shell: Sqlite3, run_file: Store, run: str, file: Path, value: str) -> None:
    for text in (value, NASTY + value, f"\r\n{value}\r\r\n'\r"):
        done = sqlite3_shell.shell(command(file, bind_sql("x", text)))
        assert (done.returncode, done.stderr) == (0, "")
        assert run_file.programs.bindings.resolve(run, "x").value == text


def test_no_value_ends_the_command(sqlite3_shell: Sqlite3, run_file: Store, run: str, tmp_path: Path) -> None:
    """What stands after the end of a here-document is run: no word that others know ends it, that of another text neither."""
    owned = tmp_path / "owned"
    others = [mark(line) for line in commands(instructions_for_subagent(run_file, run))]
    bind, large, read = commands(instructions_for_subagent(run_file, run))
    for word in ("END_OF_SQL", "END_OF_SQL_", "EOF", *others, mark(large), mark(read)):
        value = f"the answer\n{word}\ntouch '{owned}'\n"
        done = sqlite3_shell.shell(filled(bind, value=value))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert run_file.programs.bindings.resolve(run, "result").value == value
        assert not owned.exists()


def test_every_command_ends_with_a_word_of_its_own(run_file: Store, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [mark(line) for _ in range(50) for line in commands(instructions_for_subagent(run_file, run))]
    assert len(ends) == len(set(ends)) == 150
    assert min(map(len, ends)) > 32
    drawn = iter(["taken", "taken too", "free"])
    monkeypatch.setattr("persist.programs.subagents.instructions.secrets.token_hex", lambda _: next(drawn))
    line = command(Path("END_OF_SQL_taken too/state.db"), bind_sql("x", "1", source_statement="let x\nEND_OF_SQL_taken\n"))
    assert mark(line) == "END_OF_SQL_free"


def test_two_texts_name_two_files(run_file: Store, run: str) -> None:
    """Subagents that bind one large name at a time do not write one file."""
    texts = [instructions_for_subagent(run_file, run, binding="report") for _ in range(20)]
    files = [re.findall(r"attachments/[^\s']+", text) for text in texts]
    assert [len(set(found)) for found in files] == [1] * 20
    assert len({found[0] for found in files}) == 20


@each("name", ["it's a $(folder) `x`?", "two\nlines\nEND_OF_SQL\ntouch owned", "-cmd"])
def test_folders_and_names_are_only_text(sqlite3_shell: Sqlite3, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with create_run_file(folder) as store:
        assert store.run_id is not None
        line = filled(commands(instructions_for_subagent(store, store.run_id, binding=name))[0], value="v")
        assert sqlite3_shell.shell(line).returncode == 0
        assert store.programs.bindings.resolve(store.run_id, name).value == "v"
    assert not Path("owned").exists()


def test_commands_wait_for_another_writer(sqlite3_shell: Sqlite3, run_file: Store, run: str, file: Path) -> None:
    line = filled(commands(instructions_for_subagent(run_file, run))[0], value="v")
    done: list[Any] = []
    with run_file.begin() as tx:
        tx.programs.bindings.bind(run, "mine", "1")
        bare = sqlite3_shell.run(file, "UPDATE bindings SET value = 'x'")
        assert bare.returncode in (1, 5)  # newer ones end with 1
        assert "locked" in bare.stderr
        writer = threading.Thread(target=lambda: done.append(sqlite3_shell.shell(line)))
        writer.start()
        writer.join(0.5)
        assert done == []
    writer.join(30)
    assert [(one.returncode, one.stderr) for one in done] == [(0, "")]


def test_memory_may_be_in_another_file(sqlite3_shell: Sqlite3, run_file: Store, run: str, tmp_path: Path) -> None:
    with agents_file("project", tmp_path) as project:
        with pytest.raises(NotFound):
            instructions_for_subagent(run_file, run, agent="captain", agents=project)
        project.programs.agents.start("project", "captain", resume=False, scope="project")
        text = instructions_for_subagent(run_file, run, agent="captain", agents=project)
        assert str(project.path) in text
        remember, segment = commands(text)[-2:]
        for line in (filled(remember, memory="m"), filled(segment, prompt="p", summary="s")):
            assert sqlite3_shell.shell(line).returncode == 0
        agent = project.programs.agents.recall("project", "captain")
        assert agent is not None
        assert agent.memory == "m"
        assert len(project.programs.agents.segments("project", "captain")) == 1


def test_a_run_in_a_larger_file_is_named_in_every_command(sqlite3_shell: Sqlite3, tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'all.db'}") as store:
        with store.begin() as tx:
            for run in ("r1", "r2"):
                tx.programs.runs.create(id=run)
                tx.programs.agents.start(run, "captain", resume=False)
        bind, _read, _recall, remember, segment = commands(instructions_for_subagent(store, "r1", agent="captain"))
        for line in (filled(bind, value="v"), filled(remember, memory="m"), filled(segment, prompt="p", summary="s")):
            assert sqlite3_shell.shell(line).returncode == 0
        with store.read() as tx:
            assert [one.run_id for run in ("r1", "r2") for one in tx.programs.bindings.list(run)] == ["r1"]
            assert [one.memory for run in ("r1", "r2") for one in tx.programs.agents.list(run)] == ["m", None]
            assert len(tx.programs.agents.segments("r1", "captain")) == 1


def test_without_a_file_there_are_no_commands(run_file: Store, run: str) -> None:
    with Store.open("sqlite:///:memory:") as store:
        store.programs.runs.create(id="r1")
        with pytest.raises(InvalidValue):
            instructions_for_subagent(store, "r1")
    for missing in (("nowhere", None), (run, 99)):
        with pytest.raises(NotFound):
            instructions_for_subagent(run_file, *missing)
    with pytest.raises(InvalidValue):
        bind_sql("x", "\x00")


def test_a_file_is_copied_to_where_a_large_value_goes(run_file: Store, run: str, file: Path, tmp_path: Path) -> None:
    text = instructions_for_subagent(run_file, run, binding="x")
    (copy,) = [line.strip() for line in text.splitlines() if "cp FILE" in line]
    made = tmp_path / "it's made"
    made.write_text("from a file")
    subprocess.run(["sh", "-c", copy.replace("FILE", shlex.quote(str(made)))], check=True)
    (attachment,) = (file.parent / "attachments").iterdir()
    with sqlite3.connect(file) as raw:
        raw.execute(bind_sql("x", "a summary", attachment_path=f"attachments/{attachment.name}"))
    raw.close()
    assert run_file.programs.bindings.resolve(run, "x").value == "from a file"
