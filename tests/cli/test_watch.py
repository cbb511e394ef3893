"""What goes on while it is shown: `persist watch`, counts of long work, `persist signals`, and the demo."""

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from persist import Store
from persist.cli.output import Interrupted, Progress
from persist.maintenance import doctor, erase, export, import_, maintain, stats
from persist.schema.adopt import adopt
from persist.testing import FrozenClock
from tests.cases import each
from tests.cli.conftest import EVIL, SHOWN, Command
from tests.cli.test_processes import PERSIST
from tests.contract.chat.scenes import create, record, say, step, text
from tests.markdown import ROOT

pytestmark = pytest.mark.one_database


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url, events=True) as store:
        yield store


@pytest.fixture
def start(database_url: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`start("--json", …)` runs the command as a process; none outlives the test."""
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "PERSIST_DATABASE_URL": database_url, "PYTHONPATH": path}
    started: list[subprocess.Popen[str]] = []

    def run(*args: str) -> subprocess.Popen[str]:
        line = [*PERSIST, "watch", *args]
        started.append(subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def lines(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    return [line.split(maxsplit=4) for line in result.stdout.splitlines()]


def test_every_event_is_a_line(command: Command, store: Store) -> None:
    session = create(store)
    with store.begin() as tx:
        tx.events.append(f"mine{EVIL}", f"did it{EVIL}", {"why": EVIL})
    say(store, session, f"hello\n{EVIL}")
    result = command("watch", "--timeout", "0")
    (first, own, said) = result.stdout.splitlines()
    assert lines(result)[0] == ["1", first.split()[1], session, "session.created", "+1 chat_sessions"]
    assert own.endswith(f'mine{SHOWN}  did it{SHOWN}  {{"why":"\\u001b[2J{SHOWN[7:]}"}}')
    assert f"message.appended  text: hello\\n{SHOWN}; ~1 chat_sessions, +1 chat_messages, +1 chat_parts" in said
    assert result.stderr == "Seen up to 3; --after 3 goes on from there.\n"


def test_text_is_shown_as_it_comes(command: Command, store: Store) -> None:
    session = create(store)
    record(store, session, [{"type": "start"}, *step(*text("one ", f"two {EVIL}", "three"))])
    result = command("watch", session, "--timeout", "0")
    pieces = [line.split("part.delta  ", 1)[1] for line in result.stdout.splitlines() if "part.delta" in line]
    assert "".join(pieces) == f"one two {SHOWN}three"
    assert session not in result.stdout  # it is the stream that was asked for


def test_a_stream_goes_on_after_its_own_number(command: Command, store: Store) -> None:
    create(store)
    session = create(store)
    for number in range(3):
        say(store, session, str(number))
    result = command("watch", session, "--after", "2", "--timeout", "0")
    assert [line[0] for line in lines(result)] == ["3", "4"]
    assert result.stderr == "Seen up to 4; --after 4 goes on from there.\n"
    result = command("watch", session, "--after", "4", "--timeout", "0")
    assert (result.stdout, result.stderr) == ("", "Seen up to 4; --after 4 goes on from there.\n")
    assert command("watch", "other", "--timeout", "0").stderr.startswith("'other' has no events yet")
    quiet = command("watch", session, "--after", "4", "--timeout", "0", "-q")
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "", "")


def test_json_has_everything(command: Command, store: Store) -> None:
    with store.begin() as tx:
        event = tx.events.append("mine", "said", {"text": f"{EVIL}\ud800", "n": [1, None]})
    found = json.loads(command("watch", "--json", "--timeout", "0").stdout)
    assert found == {**event.model_dump(), "at": event.at.isoformat()}


def test_a_log_that_is_off_is_said_to_be(command: Command, database_url: str) -> None:
    Store.open(database_url).close()
    result = command("watch", "--timeout", "0")
    assert result.exit_code == 0
    assert result.stderr.startswith("The log of events is off: ")


@each("wrong", [["--after", "-1"], ["--timeout", "-1"], ["--after", "x"], ["--type", ""]], ids=" ".join)
def test_wrong_calls(command: Command, wrong: list[str]) -> None:
    assert command("watch", *wrong).exit_code == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_others_write_is_printed_at_once_until_ctrl_c(
    start: Callable[..., subprocess.Popen[str]], store: Store, number: signal.Signals
) -> None:
    session = create(store)
    process = start()
    assert process.stdout is not None
    for seen in range(3):
        assert process.stdout.readline().split()[0] == str(seen + 1)
        say(store, session, str(seen))
    assert process.stdout.readline().split()[0] == "4"
    process.send_signal(number)
    assert process.stdout.read() == ""
    assert process.wait(30) == 128 + number
    assert process.stderr is not None
    assert process.stderr.read() == "Seen up to 4; --after 4 goes on from there.\n"


def test_a_killed_watch_goes_on_from_its_last_line(start: Callable[..., subprocess.Popen[str]], store: Store) -> None:
    session = create(store)
    seen: list[dict[str, Any]] = []
    for number in range(4):
        for _ in range(5):
            say(store, session, "x")
        process = start("--json", "--after", str(seen[-1]["position"] if seen else 0))
        assert process.stdout is not None
        seen += [json.loads(process.stdout.readline()) for _ in range(number + 1)]
        process.kill()
        # not communicate(): it does not know what readline() has read ahead
        seen += [json.loads(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    process = start("--json", "--after", str(seen[-1]["position"]), "--timeout", "0")
    seen += [json.loads(line) for line in process.communicate(timeout=30)[0].splitlines()]
    assert [event["position"] for event in seen] == list(range(1, 22))


def test_a_reader_that_leaves_is_no_error(start: Callable[..., subprocess.Popen[str]], store: Store) -> None:
    session = create(store)
    process = start()
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    say(store, session, "x")
    assert process.wait(30) == 1
    assert process.stderr is not None
    assert process.stderr.read() == "Seen up to 1; --after 1 goes on from there.\n"


def test_from_now_on_and_of_some_types(command: Command, store: Store) -> None:
    session = create(store)
    say(store, session, "one")
    for stream in ((), (session,)):
        result = command("watch", *stream, "--now", "--timeout", "0")
        assert (result.stdout, result.stderr) == ("", "Seen up to 2; --after 2 goes on from there.\n")
    for types, numbers in {("message.*",): ["2"], ("session.created", "message.appended"): ["1", "2"], ("mess",): []}.items():
        result = command("watch", *(word for one in types for word in ("--type", one)), "--timeout", "0")
        assert [line[0] for line in lines(result)] == numbers
        assert "--after 2 goes on" in result.stderr  # behind those of other types, too
    assert command("watch", "--now", "--after", "1").exit_code == 2


# How far a long command is, and what Ctrl-C leaves: a line on a terminal, plain lines elsewhere, and one sentence at the end.


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
        ("maintenance.lines", "LineWriter", "rows"),
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


@pytest.fixture
def run_id(database_url: str, clock: FrozenClock) -> str:
    """A run that waits for "paid"."""
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        tx.workflows.runs.create("ship", trigger_id="order/7", current_phase="wait", status="queued")
        lease = tx.workflows.runs.claim("w", lease=timedelta(hours=1))
        assert lease is not None
        tx.workflows.signals.wait(lease, "paid")
    return lease.run_id


def test_a_signal_lets_a_run_go_on(command: Command, run_id: str) -> None:
    assert command("signals", "ls", run_id).stderr == "The run was told nothing.\n"
    assert command("signals", "send", run_id, "other").stdout == f"Sent other; run {run_id} is paused.\n"
    sent = command("signals", "send", run_id, "paid", "--payload", r'{"euros": "5\u001b[2J"}', "--key", "k")
    assert sent.stdout == f"Sent paid; run {run_id} is running.\n"
    again = command("signals", "send", run_id, "paid", "--key", "k", "--json")
    assert json.loads(again.stdout)["payload"] == {"euros": "5\x1b[2J"}
    head, *rows = command("signals", "ls", run_id).stdout.splitlines()
    assert head.split() == ["SEQ", "NAME", "SENT", "(UTC)", "TAKEN", "(UTC)", "PAYLOAD"]
    assert [row.split()[:2] for row in rows] == [["1", "other"], ["2", "paid"]]
    assert "\x1b" not in rows[1]
    assert command("signals", "ls", run_id, "-q").stdout == "other\npaid\n"
    assert [item["seq"] for item in json.loads(command("signals", "ls", run_id, "--json").stdout)["items"]] == [1, 2]
    assert command("signals", "send", run_id, "quiet", "-q").stdout == ""


@pytest.mark.parametrize("payload", ["{", "[" * 100_000, "NaN"])
def test_a_payload_that_is_no_json_is_refused(command: Command, run_id: str, payload: str) -> None:
    refused = command("signals", "send", run_id, "paid", "--payload", payload)
    assert refused.exit_code in (1, 2)
    assert "Traceback" not in refused.output
    assert command("signals", "ls", run_id, "-q").stdout == ""


def test_the_demo_ends_well(database_url: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--url", database_url]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    for _ in range(2):
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "status -9 (SIGKILL)" in result.stdout
        assert "every acknowledged chunk is there, and nothing else: yes" in result.stdout
        assert "not a word missing, none there twice: yes" in result.stdout
        assert "each step counted once: yes" in result.stdout
        assert result.stderr == ""
