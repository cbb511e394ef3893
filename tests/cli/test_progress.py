"""How far a long command is, and what Ctrl-C leaves: a line on a terminal, plain lines elsewhere, and one sentence at the end."""

import io
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.cli.interrupts import Interrupted
from persist.cli.progress import Progress
from persist.maintenance import doctor, export, import_, stats
from persist.schema.adopt import adopt
from tests.cli.conftest import Command
from tests.markdown import ROOT


def test_elsewhere_it_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("persist.cli.progress.time.monotonic", lambda: now)
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
    monkeypatch.setattr("persist.cli.progress._PATIENCE", 0.0)
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
        told = {name: [] for name in ("export", "import", "stats", "doctor", "adopt")}

        def teller(name: str) -> Callable[[str, int, int | None], None]:
            return lambda what, done, total: told[name].append((what, done, total))

        export(store, tmp_path / "all.jsonl", progress=teller("export"))
        stats(store, progress=teller("stats"))
        doctor(store, progress=teller("doctor"))
        export(store, io.BytesIO(), session_id=store.chat.sessions.list().items[0].id, progress=teller("import"))
        assert {total for _, _, total in told["import"]} == {None}
    told["import"].clear()
    with Store.open(tmp_path / "other.db") as other:
        import_(other, tmp_path / "all.jsonl", progress=teller("import"))
    assert ("chat_sessions", told["import"][-1][2]) in {(what, total) for what, _, total in told["import"]}
    for name in ("export", "import"):
        assert told[name][-1][1] <= (told[name][-1][2] or 0)
    for name in ("stats", "doctor"):
        counts = [done for _, done, _ in told[name]]
        assert counts == list(range(told[name][0][2] or 0))
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as raw:
        raw.execute("CREATE TABLE status_log (id INTEGER PRIMARY KEY, occurred_at INTEGER, new_status TEXT)")
    adopt(tmp_path / "foreign.db", progress=teller("adopt"))
    assert [done for _, done, _ in told["adopt"]] == list(range(7))


INTERRUPT = """
import os, signal, sys
from persist.command import main
from persist.{module} import {owner} as owner
before = owner.{name}
def interrupted(*args, **named):
    result = before(*args, **named)
    os.kill(os.getpid(), signal.SIGINT)
    return result
owner.{name} = interrupted
main()
"""
INTERRUPTED: dict[str, tuple[tuple[str, ...], tuple[str, str, str], str]] = {
    "export": (("export", "out.jsonl"), ("maintenance.exporting", "LineWriter", "rows"), "out.jsonl was not written."),
    "import": (
        ("import", "in.jsonl"),
        ("maintenance.importing", "_Import", "_mine"),
        "An import that is not complete is undone.",
    ),
    "doctor": (("doctor",), ("db.dialects.sqlite.operations", "SqliteOperations", "integrity"), "Nothing was changed."),
    "vacuum": (("vacuum",), ("db.dialects.sqlite.operations", "SqliteOperations", "vacuum"), "No row is lost; run it again."),
    "prune": (
        ("prune", "chat", "--older-than", "0s"),
        ("cli.progress", "Progress", "count"),
        "1 rows are deleted; run it again to go on.",
    ),
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_ctrl_c_ends_each_with_a_line_and_130(name: str, tmp_path: Path) -> None:
    """The signal comes in the middle of the work, on whichever thread that is."""
    arguments, (module, owner, function), left = INTERRUPTED[name]
    with Store.open(tmp_path / "state.db") as store:
        store.chat.sessions.create(agent="build", model={})
        export(store, tmp_path / "in.jsonl")
        rows = stats(store)["tables"]["chat_sessions"]["rows"]
    code = INTERRUPT.format(module=module, owner=owner, name=function)
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": str(ROOT)}
    target = "new.db" if name == "import" else "state.db"
    line = [sys.executable, "-c", code, *arguments, "--url", target]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"Interrupted. {left}\n")
    assert not (tmp_path / "out.jsonl").exists()
    assert not list(tmp_path.glob("*.part"))
    with Store.open(tmp_path / target) as store:
        found = stats(store)["tables"]["chat_sessions"]["rows"]
    assert found == (0 if name in ("import", "prune") else rows)


def test_a_copy_shows_one_count_of_the_whole(
    command: Command, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("persist.cli.progress._PLAIN_EVERY", 0.0)
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
