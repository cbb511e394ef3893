"""`persist conversations`, its import and its example, on both databases."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from persist import Store
from persist.cli import main
from persist.testing import FrozenClock
from tests.cases import each
from tests.cli.conftest import EVIL, SHOWN, Command
from tests.markdown import ROOT
from tests.subprocesses import Worker

pytestmark = pytest.mark.one_database

HOUR = timedelta(hours=1)


def message(id: str, content: Any, role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"id": id, "created_at": 1_767_000_000.5, "role": role, "content": content, **fields}


@pytest.fixture
def stored(database_url: str, clock: FrozenClock) -> dict[str, str]:
    """An old session with nothing in it, then one with a branch and a fork, full of text that would take over a terminal."""
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        tx.conversations.sessions.create(id="ses_old", status="completed", source_kind="imported_fs")
        clock.advance(seconds=60)
        session = tx.conversations.sessions.create(
            id="ses_new",
            name=f"Night{EVIL}ly",
            status="running",
            started_at=clock() - 48 * HOUR,
            agent_name=f"builder{EVIL}",
            playbook_name="release",
            invocation_kind="flow",
            node_metadata={"cwd": EVIL},
        )
        root = tx.conversations.branches.create(session.id, name=f"main{EVIL}")
        tx.conversations.messages.record(root.id, message("m1", {"system_message": "Be brief."}, "system"))
        tx.conversations.messages.record(root.id, message("m2", f"two\nlines{EVIL}", recipient=f"you{EVIL}", channel="c"))
        tx.conversations.messages.record(root.id, message("m3", {"a": EVIL, "b": "x" * 400, "half": "\ud83d"}, "assistant"))
        fork = tx.conversations.branches.fork(root.id, at=1, name="fork")
        tx.conversations.messages.record(fork.id, message("m4", [0], "action"))
    return {"root": root.id, "fork": fork.id}


def listed(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.split()


def dumped(database_url: str, read: Callable[[Any], Any]) -> Any:
    with Store.open(database_url) as store, store.read() as tx:
        found = read(tx.conversations)
        many = isinstance(found, list)
        values = [one.model_dump(mode="json") for one in (found if many else [found])]
    return values if many else values[0]


def test_ls_shows_the_latest_update_first_with_counts(command: Command, stored: dict[str, str]) -> None:
    head, *rows = command("conversations", "ls").stdout.splitlines()
    assert head.split() == ["SESSION", "STATUS", "AGENT", "UPDATED", "(UTC)", "BRANCHES", "MESSAGES", "NAME"]
    assert rows[0].split() == ["ses_new", "running", f"builder{SHOWN}", "2026-01-02", "03:05:05", "2", "4", f"Night{SHOWN}ly"]
    assert rows[1].split() == ["ses_old", "completed", "-", "2026-01-02", "03:04:05", "0", "0"]


@each(
    ("filters", "ids"),
    [
        (("--status", "running"), ["ses_new"]),
        (("--status", "failed"), []),
        (("--agent", f"builder{EVIL}"), ["ses_new"]),
        (("--playbook", "release"), ["ses_new"]),
        (("--kind", "flow"), ["ses_new"]),
        (("--source", "imported_fs"), ["ses_old"]),
        (("--source", "live", "--status", "completed"), []),
        (("--limit", "1"), ["ses_new"]),
    ],
)
def test_ls_filters(command: Command, stored: dict[str, str], filters: tuple[str, ...], ids: list[str]) -> None:
    assert listed(command("conversations", "ls", "-q", *filters)) == ids


def test_ls_pages(command: Command, stored: dict[str, str], database_url: str) -> None:
    page = ("conversations", "ls", "--limit", "1")
    first = json.loads(command(*page, "--json").stdout)
    assert first.keys() == {"items", "cursor"}
    (item,) = first["items"]
    assert (item.pop("branch_count"), item.pop("message_count")) == (2, 4)
    assert item == dumped(database_url, lambda conversations: conversations.sessions.get("ses_new"))
    assert command(*page).stderr == f"There are more: add --after {first['cursor']}\n"
    last = json.loads(command(*page, "--json", "--after", first["cursor"]).stdout)
    assert ([item["id"] for item in last["items"]], last["cursor"]) == (["ses_old"], None)
    assert command(*page, "--after", "nonsense").exit_code == 1


def test_show_is_everything_and_cannot_harm(command: Command, stored: dict[str, str]) -> None:
    result = command("conversations", "show", "ses_new")
    assert result.exit_code == 0
    assert not {"\x1b", "\x9b", "\u202e"} & set(result.stdout)
    top, branches, *messages = result.stdout.split("\n\n")
    header = dict(line.split(maxsplit=1) for line in top.splitlines())
    assert (header["session"], header["status"], header["name"]) == ("ses_new", "running", f"Night{SHOWN}ly")
    assert (header["agent"], header["playbook"], header["kind"]) == (f"builder{SHOWN}", "release", "flow")
    assert (header["created"], header["started"]) == ("2026-01-02 03:05:05 UTC", "2025-12-31 03:05:05 UTC")
    assert "ended" not in header
    assert branches.splitlines()[0] == "branches"
    assert sorted(line.split() for line in branches.splitlines()[1:]) == sorted(
        [[stored["root"], "-", f"main{SHOWN}"], [stored["fork"], "-", "fork", "from", stored["root"], "at", "1"]]
    )
    at = "2025-12-29 09:20:00"
    assert [text.rstrip().splitlines() for text in messages] == [
        [f"system  {at}  m1", "  Be brief."],
        [f"user  {at}  to you{SHOWN}  in c  m2", "  two", f"  lines{SHOWN}"],
        [f"assistant  {at}  m3", messages[2].splitlines()[1]],
        [f"action  {at}  m4", "  [0]"],
    ]
    assert messages[2].splitlines()[1].startswith('  {"a":"\\u001b[2J')
    assert messages[2].splitlines()[1].endswith(" characters)")


@pytest.mark.parametrize("by", ["id", "name"])
def test_show_a_branch_with_what_it_inherits(command: Command, stored: dict[str, str], database_url: str, by: str) -> None:
    branch = stored["fork"] if by == "id" else "fork"
    shown = json.loads(command("conversations", "show", "ses_new", "--branch", branch, "--json").stdout)
    assert shown == {
        "session": dumped(database_url, lambda conversations: conversations.sessions.get("ses_new")),
        "branches": dumped(database_url, lambda conversations: conversations.branches.list("ses_new")),
        "messages": dumped(database_url, lambda conversations: conversations.branches.history(stored["fork"])),
    }
    assert [one["id"] for one in shown["messages"]] == ["m1", "m4"]


def test_show_the_newest(command: Command, stored: dict[str, str]) -> None:
    show = ("conversations", "show", "ses_new", "-q", "--limit")
    assert [line.split()[-1] for line in command(*show, "2").stdout.split("\n") if " 09:20:00" in line] == ["m3", "m4"]
    result = command(*show, "1", "--branch", "fork")
    assert result.stdout == "\naction  2025-12-29 09:20:00  m4\n  [0]\n"


def test_show_a_branch_that_is_not_one(command: Command, stored: dict[str, str], database_url: str) -> None:
    result = command("conversations", "show", "ses_new", "--branch", "nobody")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "Error: There is no branch 'nobody'.\n")
    with Store.open(database_url) as store, store.begin() as tx:
        tx.conversations.branches.fork(stored["root"], name="fork")
    result = command("conversations", "show", "ses_new", "--branch", "fork")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: There are 2 branches named 'fork': ")


def test_show_when_it_ended(command: Command, stored: dict[str, str]) -> None:
    assert "\nended    2026-01-02 03:04:05 UTC (about)\n" in command("conversations", "show", "ses_old").stdout


def test_prune_counts_and_a_dry_run_only_counts(command: Command, stored: dict[str, str]) -> None:
    prune = ("conversations", "prune", "--keep-days", "0", "--keep-n", "1")
    counts = "1 sessions, 0 branches, 1 progressions, 0 messages"
    assert command(*prune, "--dry-run").stdout == f"Would delete {counts}.\n"
    report = json.loads(command(*prune, "--dry-run", "--json").stdout)
    assert report == {"sessions": 1, "branches": 0, "progressions": 1, "messages": 0, "dry_run": True}
    assert listed(command("conversations", "ls", "-q")) == ["ses_new", "ses_old"]
    assert command(*prune).stdout == f"Deleted {counts}.\n"
    assert listed(command("conversations", "ls", "-q")) == ["ses_new"]
    assert command(*prune, "-q").output == ""


def test_prune_keeps_what_it_is_told_to(command: Command, stored: dict[str, str]) -> None:
    for kept in ((), ("--keep-n", "0", "--keep-days", "100000"), ("--keep-n", "2", "--keep-days", "0")):
        assert json.loads(command("conversations", "prune", "--json", *kept).stdout)["sessions"] == 0
    assert command("conversations", "prune", "--keep-n", "-1").exit_code == 2


def test_doctor_ends_what_does_not_run(command: Command, stored: dict[str, str], database_url: str) -> None:
    doctor = ("conversations", "doctor")
    result = command(*doctor, "--dry-run")
    assert result.stdout == "ses_new  running since 2025-12-31 03:05:05 UTC, silent since 2026-01-02 03:05:05 UTC\n"
    assert result.stderr == "1 would be aborted.\n"
    assert json.loads(command(*doctor, "--dry-run", "--json").stdout) == {"items": ["ses_new"], "cursor": None, "dry_run": True}
    assert listed(command("conversations", "ls", "-q", "--status", "running")) == ["ses_new"]
    result = command(*doctor, "--as", "failed", "--hours", "0.5")
    assert (result.exit_code, result.stderr) == (0, "1 are now failed.\n")
    session = dumped(database_url, lambda conversations: conversations.sessions.get("ses_new"))
    assert (session["status"], session["status_reason_summary"]) == ("failed", "doctor: no end within 0.5 hours")
    assert session["ended_at"] is not None
    result = command(*doctor)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "Every running session is younger than that.\n")


def test_doctor_leaves_the_young_alone(command: Command, database_url: str) -> None:
    now = datetime.now(UTC)
    with Store.open(database_url) as store, store.begin() as tx:
        for id, started in (("young", now - HOUR), ("old", now - 25 * HOUR), ("unknown", None)):
            tx.conversations.sessions.create(id=id, status="running", started_at=started)
        tx.conversations.sessions.update("unknown", started_at=None, last_message_at=None)
    assert sorted(listed(command("conversations", "doctor", "-q", "--dry-run"))) == ["old", "unknown"]
    assert listed(command("conversations", "doctor", "-q", "--hours", "1e300", "--dry-run")) == ["unknown"]
    assert "unknown  running since an unknown time\n" in command("conversations", "doctor").stdout
    assert listed(command("conversations", "ls", "-q", "--status", "running")) == ["young"]
    assert command("conversations", "doctor", "--as", "completed").exit_code == 2


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two runs, and one with a broken manifest, whose name would take over a terminal."""
    for name, manifest in (("r1", '{"status": "timeout"}'), ("r2", "{}"), (f"r3{EVIL}", "{")):
        (tmp_path / "runs" / name / "branches").mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text(manifest)
        branch = {
            "messages": {"collections": [{"id": f"{name}-m", "created_at": 1_767_000_000.5, "role": "user", "content": "hi"}]}
        }
        (tmp_path / "runs" / name / "branches" / f"{name}-b.json").write_text(json.dumps(branch))
    return tmp_path / "runs"


def test_import_counts_what_it_did_and_fails_for_errors(command: Command, runs: Path, database_url: str) -> None:
    result = command("conversations", "import", str(runs))
    assert (result.exit_code, result.stdout) == (1, "2 imported, 0 skipped, 1 errors\n")
    assert not {"\x1b", "\x9b", "\u202e"} & set(result.stderr)
    warning, error = result.stderr.splitlines()
    assert warning.startswith("Warning: the run 'r3\\x1b[2J")
    assert error == f"Error: Of the runs below {str(runs)!r}, 1 could not be imported."
    again = command("conversations", "import", str(runs), "--json")
    assert (again.exit_code, json.loads(again.stdout)) == (1, {"imported": 0, "skipped": 2, "errors": 1})
    (runs / f"r3{EVIL}" / "run.json").write_text('{"id": "r3"}')
    last = command("conversations", "import", str(runs), "-q")
    assert (last.exit_code, last.output) == (0, "")
    assert sorted(command("conversations", "ls", "-q", "--source", "imported_fs").stdout.split()) == ["r1", "r2", "r3"]
    assert "  hi\n" in command("conversations", "show", "r1").stdout


def test_import_of_no_folder_makes_no_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    result = CliRunner().invoke(main, ["conversations", "import", str(tmp_path / "none"), "--url", url])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: There is no folder ")
    assert list(tmp_path.iterdir()) == []


# examples/conversations.py, on both databases, twice on the same one.


PRINTED = """\
1. A conversation, and forks of forks of it
   main     inherits 0: You plan a picnic. / Will there be rain or sun? / Sun, and no wind.
   doubt    inherits 2: You plan a picnic. / Will there be rain or sun? / Rain, I fear.
   indoors  inherits 3: You plan a picnic. / Will there be rain or sun? / Rain, I fear. / What does a hall cost?
   budget   inherits 4: You plan a picnic. / Will there be rain or sun? / Rain, I fear. / What does a hall cost? / \
The price is over budget.
   6 messages are stored
2. Two sessions send each other messages
   the writer read ['Write an invitation.', 'Say that it may rain.']; unread now: 0 there, 1 here
3. What was said about money?
   0.00 The price is over budget.
   0.00 What does a hall cost?
4. Old sessions go, and what nothing else shows
   1 session, 1 branch and 1 of its 2 messages are gone
"""


def fresh(url: str) -> tuple[int, str, str]:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "conversations.py"), "--url", url]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def forked(url: str) -> tuple[int, str]:
    """What it ends with and what it says, forked from a process that has loaded persist."""
    with Worker("examples.conversations", "--url", url) as worker:
        said, _ = worker.communicate(timeout=120)
    return worker.wait(), said


def test_the_example_shows_what_it_says(database_url: str) -> None:
    code, said, errors = fresh(database_url)
    again = forked(database_url)
    assert (code, errors, again[0]) == (0, "", 0)
    for shown in (said, again[1]):
        # two messages are equally near, so either may be the first
        assert sorted(shown.splitlines()) == sorted(PRINTED.splitlines())


def test_the_example_leaves_the_sessions_of_others_alone(database_url: str) -> None:
    with Store.open(database_url) as store, store.begin() as tx:
        tx.conversations.sessions.create(id="mine", agent_name="somebody")
    assert forked(database_url) == (1, "")
    with Store.open(database_url) as store, store.read() as tx:
        assert [session.id for session in tx.conversations.sessions.list().items] == ["mine"]
