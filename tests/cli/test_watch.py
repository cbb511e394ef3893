"""`persist watch`, on both databases: in this process, and as one that is interrupted or killed."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from persist import Store
from tests.cases import each
from tests.cli.test_processes import PERSIST
from tests.contract.chat.scenes import create, record, say, step, text
from tests.markdown import ROOT

pytestmark = pytest.mark.one_database

Command = Callable[..., Result]
EVIL = "\x1b[2J\x9b\u202e"
SHOWN = "\\x1b[2J\\x9b\\u202e"


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


@each("wrong", [["--after", "-1"], ["--timeout", "-1"], ["--after", "x"]], ids=" ".join)
def test_wrong_calls(command: Command, wrong: list[str]) -> None:
    assert command("watch", *wrong).exit_code == 2


def test_a_mistyped_file_is_not_made(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "missing.db"
    result = command("watch", "--url", f"sqlite:///{file.as_posix()}", "--timeout", "0")
    assert result.exit_code == 1
    assert "missing.db" in result.stderr
    assert not file.exists()


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
