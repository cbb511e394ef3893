"""`persist programs`, `persist histories` and `persist transcripts`, on run files and on both databases."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from persist import Store
from persist.cli import main
from persist.programs import list_run_files, open_run_file
from persist.testing import FrozenClock
from tests.cli.conftest import EVIL, SHOWN, Command

pytestmark = pytest.mark.one_database


def fill(store: Store, run: str) -> int:
    """A block, a branch and a loop under way, values in both scopes; the block's id."""
    with store.begin() as tx:
        programs = tx.programs
        facts = {"parallel_id": "p1", "strategy": "any", "branches": ["a", "b"]}
        block = programs.executions.begin(run, statement_index=1, statement_text=f"parallel:{EVIL}", metadata=facts)
        branch = {"parallel_id": "p1", "branch": "a"}
        below = programs.executions.begin(run, statement_index=2, statement_text="a", parent_id=block.id, metadata=branch)
        programs.executions.fail(run, below.id, f"no{EVIL}")
        loop = {"loop_id": "l1", "current_iteration": 2, "max_iterations": 5}
        programs.executions.begin(run, statement_index=3, statement_text="loop", metadata=loop)
        programs.bindings.bind(run, f"x{EVIL}", f"root\n{EVIL}" + "y" * 300)
        programs.bindings.bind(run, "x", "in the frame", execution_id=below.id)
        return block.id


@pytest.fixture
def stored(database_url: str, clock: FrozenClock) -> int:
    """The block's id of run r1; r2 is older and failed."""
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            tx.programs.runs.create(id="r2")
            tx.programs.runs.finish("r2", "failed")
        clock.advance(seconds=60)
        with store.begin() as tx:
            tx.programs.runs.create(id="r1", program_path=f"a.prose{EVIL}", program_source="large")
        return fill(store, "r1")


def printed(result: Result) -> str:
    assert result.exit_code == 0, result.output
    assert EVIL[0] not in result.stdout
    return result.stdout


def test_ls(command: Command, stored: int) -> None:
    head, *rows = printed(command("programs", "ls")).splitlines()
    assert head.split() == ["RUN", "STATUS", "STARTED", "(UTC)", "PROGRAM"]
    assert [row.split()[:2] for row in rows] == [["r1", "running"], ["r2", "failed"]]
    assert SHOWN in rows[0]
    assert printed(command("programs", "ls", "-q", "--status", "failed")).split() == ["r2"]
    listed = json.loads(printed(command("programs", "ls", "--json", "--limit", "1")))["items"]
    assert [(run["id"], "program_source" in run) for run in listed] == [("r1", False)]
    assert "No runs." in command("programs", "ls", "--status", "interrupted").stderr


def test_show(command: Command, stored: int) -> None:
    lines = printed(command("programs", "show", "r1")).splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["run", "program", "status", "started"]
    assert re.fullmatch(r"run by   .+, process \d+, seen 2026-01-02 \d\d:\d\d:\d\d UTC", lines[4])
    assert lines[5] == f"  {stored}  executing  parallel:{SHOWN}"
    assert lines[6].startswith(f"    {stored + 1}  failed  a  no{SHOWN}")
    found = json.loads(printed(command("programs", "show", "r1", "--json")))
    assert (found["run"]["id"], len(found["executions"])) == ("r1", 3)
    assert printed(command("programs", "show", "r2", "-q")).split() == ["failed"]
    missing = command("programs", "show", "nowhere")
    assert (missing.exit_code, missing.stdout) == (1, "")


def test_resume_point(command: Command, stored: int) -> None:
    text = printed(command("programs", "resume-point", "r1"))
    assert "parallel p1 (any): a failed, b pending" in text
    assert "loop l1: iteration 2 of at most 5" in text
    assert "2 values, 0 agents" in text
    assert printed(command("programs", "resume-point", "r1", "-q")).split() == [str(stored + 2), str(stored)]
    assert json.loads(printed(command("programs", "resume-point", "r1", "--json")))["loops"][0]["loop_id"] == "l1"


def test_bindings(command: Command, stored: int) -> None:
    text = printed(command("programs", "bindings", "r1"))
    assert [line.split()[0] for line in text.splitlines()] == ["NAME", f"x{SHOWN}", "x"]
    assert f"root\\n{SHOWN}yyy" in text
    assert printed(command("programs", "bindings", "r1", "x", "--frame", str(stored + 1))) == "in the frame\n"
    assert command("programs", "bindings", "r1", "x").exit_code == 1
    assert len(json.loads(printed(command("programs", "bindings", "r1", "--json")))["items"]) == 2
    assert printed(command("programs", "bindings", "r1", "-q")).splitlines() == [f"x{SHOWN}", "x"]
    assert "No values." in command("programs", "bindings", "r2").stderr


def test_run_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERSIST_DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> str:
        return printed(CliRunner().invoke(main, ["programs", *args]))

    Path("a.prose").write_text("let x = 1")
    made = run("new", "a.prose", "-q").strip()
    assert Path(".prose", "runs", made, "program.prose").read_text() == "let x = 1"
    second = json.loads(run("new", "--json"))
    assert Path(second["path"]) in [path if path.is_absolute() else Path(path) for path in list_run_files(Path())]
    with open_run_file(Path(".prose", "runs", made)) as store:
        fill(store, made)
        with store.begin() as tx:
            tx.programs.bindings.bind(made, "large", "z" * 200_000)
    assert sorted(run("ls", "-q").split()) == sorted([made, second["id"]])
    for place in (made, str(Path(".prose", "runs", made)), str(Path(".prose", "runs", made, "state.db"))):
        assert run("show", place, "-q") == "running\n"
        assert run("bindings", place, "large") == "z" * 200_000 + "\n"
    monkeypatch.setenv("PERSIST_DATABASE_URL", "sqlite:///nowhere.db")
    assert sorted(run("ls", "-q", "--root", ".").split()) == sorted([made, second["id"]])


# `persist histories` and `persist show` of runs that took steps and were never registered.


AT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def url(database_url: str) -> str:
    with Store.open(database_url) as store, store.begin() as tx:
        tx.histories.run_events.append("silent", "run_started", step_index=0, at=AT)
    return database_url


def parsed(url: str, *words: str) -> Any:
    done = CliRunner().invoke(main, [*words, "--url", url])
    assert done.exit_code == 0, done.output
    return done


def test_a_run_that_was_never_registered_is_shown(url: str) -> None:
    for words in (["show", "silent"], ["histories", "show", "silent"]):
        lines = [line.split(maxsplit=1) for line in parsed(url, *words).stdout.splitlines() if line]
        assert ["run", "silent"] in lines
        assert ["started", "never registered"] in lines
        assert lines[-1][0] == "0"
    told = json.loads(parsed(url, "show", "silent", "--json").stdout)
    assert (told["run"]["id"], told["run"]["started_at"], len(told["events"])) == ("silent", None, 1)


def test_a_run_that_was_never_registered_is_listed(url: str) -> None:
    _, row = parsed(url, "histories", "runs").stdout.splitlines()
    assert row.startswith("silent ")
    assert "never registered" in row
    assert parsed(url, "histories", "runs", "-q").stdout == "silent\n"
    assert "persist histories runs" in parsed(url, "ls", "histories").stderr


# `persist transcripts`: sessions, their files, and which one is meant.


SLUG = "-home-me"
ENTRIES: list[dict[str, Any]] = [
    {"type": "user", "uuid": "a", "message": {"role": "user", "content": "Hi \x1b[31m"}},
    {"type": "assistant", "uuid": "b", "message": {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}},
    {"type": "custom-title", "customTitle": "t"},
]


@pytest.fixture
def transcript(database_url: str, clock: FrozenClock) -> str:
    """Two sessions; another project has one of them, too."""
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        append = tx.transcripts.entries.append
        append(SLUG, "one", ENTRIES)
        append(SLUG, "one", ENTRIES[:1], subpath="subagents/agent-1")
        append(SLUG, "two", ENTRIES[:1])
        append("-home-you", "two", ENTRIES[:1])
    return database_url


def test_ls_and_show(command: Command, transcript: str) -> None:
    assert sorted(command("transcripts", "ls", "-q").stdout.split()) == ["one", "two", "two"]
    assert command("transcripts", "ls", "-q", "--project", "-home-you").stdout == "two\n"
    listed = json.loads(command("transcripts", "ls", "--json", "--limit", "2").stdout)
    assert len(listed["items"]) == 2
    assert len(json.loads(command("transcripts", "ls", "--json", "--after", listed["cursor"]).stdout)["items"]) == 1
    shown = command("transcripts", "show", "one").stdout
    assert "subagents/agent-1" in shown
    assert "Hello." in shown
    assert "\x1b[31m" not in shown
    assert command("transcripts", "show", "one", "-q").stdout == command("show", "one", "-q").stdout
    found = json.loads(command("transcripts", "show", "one", "--json", "--limit", "2").stdout)
    assert found["entries"] == ENTRIES[1:]
    assert found["subpaths"] == ["subagents/agent-1"]
    part = json.loads(
        command("transcripts", "show", found["transcript"]["id"], "--json", "--subpath", "subagents/agent-1").stdout
    )
    assert part["entries"] == ENTRIES[:1]


def test_which_one_is_meant(command: Command, transcript: str, tmp_path: Path) -> None:
    for arguments in (("transcripts", "show", "two"), ("show", "two"), ("transcripts", "write", "two", "--home", str(tmp_path))):
        result = command(*arguments)
        assert result.exit_code == 2
        assert "--project" in result.stderr
    assert json.loads(command("transcripts", "show", "two", "--project", "-home-you", "--json").stdout)["entries"] == ENTRIES[:1]
    nobody = command("transcripts", "show", "nobody")
    assert (nobody.exit_code, nobody.stderr) == (1, "Error: There is no transcript 'nobody'.\n")
    file = str(tmp_path / "x.jsonl")
    assert "names several: trn_" in command("export", file, "--session", "two").stderr
    assert command("export", file, "--session", "one", "-q").exit_code == 0
    lines = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    assert [line["table"] for line in lines if "table" in line] == ["transcript_sessions", *["transcript_entries"] * 4]


def test_files_and_back(command: Command, transcript: str, tmp_path: Path) -> None:
    written = command("transcripts", "write", "one", "--home", str(tmp_path)).stdout.splitlines()
    log = tmp_path / "projects" / SLUG / "one.jsonl"
    assert written == [str(log), str(log.with_suffix("") / "subagents" / "agent-1.jsonl")]
    assert [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] == ENTRIES
    again = command("transcripts", "write", "one", "--home", str(tmp_path))
    assert (again.exit_code, again.stdout) == (1, "")
    assert "is there already" in again.stderr
    assert command("transcripts", "write", "one", "--home", str(tmp_path), "--force", "-q").output == ""
    with log.open("a", encoding="utf-8") as file:
        file.write('{"type": "tag"}\n{"type": "to')
    said = command("transcripts", "import", "--home", str(tmp_path)).stdout
    assert said == "1 new entries of 1 sessions; 1 broken lines were skipped\n"
    counts = json.loads(command("transcripts", "import", "one", "--home", str(tmp_path), "--as", "tenant", "--json").stdout)
    assert counts == {"sessions": 1, "entries": 5, "skipped": 1}
    assert command("transcripts", "ls", "-q", "--project", "tenant").stdout == "one\n"
    missing = command("transcripts", "import", "nobody", "--home", str(tmp_path))
    assert (missing.exit_code, missing.stderr) == (1, "Error: There is no session log 'nobody'.\n")
    assert command("transcripts", "import", "one").exit_code == 2
