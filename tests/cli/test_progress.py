"""How far a long command is, and what Ctrl-C leaves: a line on a terminal, plain lines elsewhere, and one sentence at the end."""

import io
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from persist import Store
from persist.cli.output import Interrupted, Progress
from persist.maintenance import doctor, erase, export, import_, maintain, stats
from persist.schema.adopt import adopt
from tests.cli.conftest import Command
from tests.markdown import ROOT


def test_elsewhere_it_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("persist.cli.output.time.monotonic", lambda: now)
    with (
        Progress("Copying", unit="rows", left="", quiet=False, terminal=False) as lines,
        Progress("Copying", unit="rows", left="", quiet=True, terminal=True) as nothing,
    ):
        for done in range(4):
            lines("chat_messages", 1000 * done, 3000)
            nothing("chat_messages", 1000 * done, 3000)
            now += 2.5
        assert lines.done == 3000
        lines.count(3500)
    lines("the file", 0, None)
    assert capsys.readouterr().err.splitlines() == [
        "Copying chat_messages: 2,000 of 3,000 rows, 400/s",
        "Copying: 3,500 rows, 350/s",
    ]


@pytest.mark.parametrize("rich", [True, False])
def test_on_a_terminal(rich: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persist.cli.output._PATIENCE", 0.0)
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.progress", None)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal then
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with Progress("Examining", left="", quiet=False, terminal=True) as progress:
        progress("foreign keys", 3, 19)
    assert "Examining foreign keys, 4 of 19" in capsys.readouterr().err


def test_work_on_another_thread_returns_and_raises() -> None:
    with Progress("Reading", left="", quiet=False, terminal=False) as progress:
        assert progress.run(lambda: threading.current_thread().name) == "persist-command"
        with pytest.raises(ZeroDivisionError):
            progress.run(lambda: 1 // 0)


def test_an_interrupt_says_what_is_left() -> None:
    with pytest.raises(Interrupted) as raised, Progress("Deleting", left=lambda: "7 rows are deleted.", quiet=True):
        raise KeyboardInterrupt
    assert raised.value.left == "7 rows are deleted."


def test_the_library_tells_how_far_the_whole_work_is(sqlite_url: str, tmp_path: Path) -> None:
    with Store.open(sqlite_url) as store:
        for _ in range(3):
            store.chat.sessions.create(agent="build", model={})
        told: dict[str, list[tuple[str, int, int | None]]]
        told = {name: [] for name in ("export", "import", "stats", "doctor", "adopt", "maintain", "erase", "events")}

        def teller(name: str) -> Callable[[str, int, int | None], None]:
            return lambda what, done, total: told[name].append((what, done, total))

        export(store, tmp_path / "all.jsonl", progress=teller("export"))
        stats(store, progress=teller("stats"))
        doctor(store, progress=teller("doctor"))
        maintain(store, progress=teller("maintain"))
        erase(store, owner="nobody", progress=teller("erase"))
        store.switch_events(True, progress=lambda done, total: told["events"].append(("", done, total)))
        export(store, io.BytesIO(), session_id=store.chat.sessions.list().items[0].id, progress=teller("import"))
        assert {total for _, _, total in told["import"]} == {None}
    told["import"].clear()
    with Store.open(tmp_path / "other.db") as other:
        import_(other, tmp_path / "all.jsonl", progress=teller("import"))
    assert ("chat_sessions", told["import"][-1][2]) in {(what, total) for what, _, total in told["import"]}
    for name in ("export", "import"):
        assert told[name][-1][1] <= (told[name][-1][2] or 0)
    assert [done for _, done, total in told["erase"] if total == told["erase"][0][2]] == list(range(told["erase"][0][2] or 0))
    steps = [done for _, done, _ in told["events"]]  # small streams go together
    assert steps[0] == 0
    assert steps == sorted(set(steps))
    assert steps[-1] < (told["events"][0][2] or 0)
    for name in ("stats", "doctor", "maintain"):
        counts = [done for _, done, _ in told[name]]
        assert counts == list(range(told[name][0][2] or 0))
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as raw:
        raw.execute("CREATE TABLE status_log (id INTEGER PRIMARY KEY, occurred_at INTEGER, new_status TEXT)")
    adopt(tmp_path / "foreign.db", progress=teller("adopt"))
    assert [done for _, done, _ in told["adopt"]] == list(range(7))


INTERRUPT = """
import os, threading
from persist.command import main
from persist.{module} import {owner} as owner
before = owner.{name}
def interrupted(*args, **named):
    result = before(*args, **named)
    os.kill(os.getpid(), {number})
    if threading.current_thread() is not threading.main_thread():
        threading.Event().wait(60)  # the process ends in the meantime
    return result
owner.{name} = interrupted
main()
"""
Place = tuple[str, str, str]
_AT_A_STEP: Place = ("cli.output", "Progress", "__call__")
_INT, _TERM = signal.SIGINT, signal.SIGTERM
INTERRUPTED: dict[str, tuple[str, Place, signal.Signals, str]] = {
    "export": (
        "export out.jsonl --url state.db",
        ("maintenance.exporting", "LineWriter", "rows"),
        _INT,
        "out.jsonl was not written.",
    ),
    "import": (
        "import in.jsonl --url new.db",
        ("maintenance.importing", "_Import", "_mine"),
        _TERM,
        "An import that is not complete is undone.",
    ),
    "doctor": (
        "doctor state.db",
        ("db.dialects.sqlite.operations", "SqliteOperations", "integrity"),
        _TERM,
        "Nothing was changed.",
    ),
    "vacuum": (
        "vacuum state.db",
        ("db.dialects.sqlite.operations", "SqliteOperations", "vacuum"),
        _INT,
        "No row is lost; run it again.",
    ),
    "prune": ("prune chat --older-than 0s --url state.db", _AT_A_STEP, _TERM, "1 rows are deleted; run it again to go on."),
    "copy": ("copy state.db new.db", _AT_A_STEP, _TERM, "A copy that is not complete is undone: DST is without rows."),
    "backup": ("backup out.jsonl --url state.db", _AT_A_STEP, _TERM, "out.jsonl was not written."),
    "adopt": (
        "adopt foreign.db",
        _AT_A_STEP,
        _TERM,
        "The file is adopted wholly or not at all; the same command can be run again.",
    ),
    "upgrade": ("upgrade state.db", ("schema", "migrate", "current"), _TERM, "Run it again: it goes on from what is committed."),
    "maintain": ("maintain state.db", _AT_A_STEP, _TERM, "Steps that are done stay done; run it again for the rest."),
    "erase": (
        "erase --owner ada --yes --url state.db",
        _AT_A_STEP,
        _TERM,
        "What was erased stays erased; this command, or once it has begun `persist maintain`, goes on with the rest.",
    ),
    "events": (
        "events on state.db",
        _AT_A_STEP,
        _INT,
        "Run it again: it goes on from what is committed, and `persist events status` says how far the log is.",
    ),
    "tenants": (
        "tenants copy state other --url .",
        _AT_A_STEP,
        _TERM,
        "A copy that is not complete cannot be opened: run this again, or drop state there.",
    ),
}


def interrupted(place: Path, words: str, at: Place, number: int) -> tuple[int, str, str]:
    """How the command ends that gets the signal once it has been there: its exit code, its output and its standard error."""
    module, owner, name = at
    code = INTERRUPT.format(module=module, owner=owner, name=name, number=int(number))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERSIST_")}
    line = [sys.executable, "-c", code, *words.split()]
    done = subprocess.run(
        line, cwd=place, env={**kept, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store of one session, its export, a file of another program, and a folder for tenants."""
    with Store.open(tmp_path / "state.db") as store:
        store.chat.sessions.create(agent="build", model={})
        export(store, tmp_path / "in.jsonl")
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as raw:
        raw.execute("CREATE TABLE status_log (id INTEGER PRIMARY KEY, occurred_at INTEGER, new_status TEXT)")
    (tmp_path / "other").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", INTERRUPTED)
def test_a_signal_ends_each_with_a_line_and_an_exit_code(name: str, folder: Path) -> None:
    """It comes in the middle of the work, on whichever thread that is: 130 after Ctrl-C, 143 after SIGTERM."""
    words, at, number, left = INTERRUPTED[name]
    assert interrupted(folder, words, at, number) == (128 + number, "", f"Interrupted. {left}\n")
    assert not (folder / "out.jsonl").exists()
    assert not list(folder.glob("*.part"))
    with Store.open(folder / "state.db") as store:
        assert len(store.chat.sessions.list().items) == (0 if name == "prune" else 1)
    if (folder / "new.db").exists():
        with Store.open(folder / "new.db") as store:
            assert store.chat.sessions.list().items == []


@pytest.mark.parametrize("number", [_INT, _TERM])
def test_a_signal_before_the_work_or_after_it(number: signal.Signals, folder: Path) -> None:
    """Before: nothing was done, and that is said. After: the work is done, which the exit code says, and what it prints."""
    words = "export out.jsonl --url state.db"
    early = interrupted(folder, words, ("cli", "root", "note_json"), number)
    assert early == (128 + number, "", "Interrupted before anything was done.\n")
    assert not (folder / "out.jsonl").exists()
    late: list[Place] = [("store.store", "Store", "close"), ("cli", "moving", "_rows")]
    for at in late:
        code, said, errors = interrupted(folder, f"{words} --force", at, number)
        assert (code, errors) == (0, ""), at
        assert said.startswith("Exported ")
    assert (folder / "out.jsonl").exists()


def test_a_copy_shows_one_count_of_the_whole(
    command: Command, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("persist.cli.output._PLAIN_EVERY", 0.0)
    with Store.open(sqlite_url) as store:
        for _ in range(3):
            store.chat.sessions.create(agent="build", model={})
    shown = command("copy", sqlite_url, str(tmp_path / "copy.db")).stderr.splitlines()
    whole = {line.split(" of ")[1].split()[0] for line in shown}
    assert len(whole) == 1
    assert shown[-1].startswith("Copying ")
    (rows,) = whole
    assert f"{rows} of {rows} rows" in shown[-1]
    assert command("copy", sqlite_url, str(tmp_path / "second.db"), "-q").stderr == ""
