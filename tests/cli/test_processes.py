"""The command as a process: killed, interrupted, cut off from its reader; on both databases."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from persist.cli import main
from tests.markdown import ROOT

PERSIST = [sys.executable, "-c", "from persist.cli import main; main(prog_name='persist')"]
PIECES = 400


@pytest.fixture
def environment(database_url: str) -> dict[str, str]:
    return environment_of(database_url)


def environment_of(url: str) -> dict[str, str]:
    return {**os.environ, "PERSIST_DATABASE_URL": url, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def persist(environment: dict[str, str], *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PERSIST, *args], env=environment, capture_output=True, text=True, timeout=60, **options)


def long_stream() -> Iterator[bytes]:
    for chunk in [
        {"type": "start", "messageId": "msg_long"},
        {"type": "text-start", "id": "t"},
        *({"type": "text-delta", "id": "t", "delta": f"{number} "} for number in range(PIECES)),
    ]:
        yield b"data: " + json.dumps(chunk).encode() + b"\n\n"


def start_recording(environment: dict[str, str]) -> tuple[subprocess.Popen[bytes], str]:
    """A recorder that has been sent the long stream and now waits for more, and its session."""
    command = [*PERSIST, "record", "--session", "new", "--agent", "build"]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    session = process.stdout.readline().split()[1].decode()
    process.stdin.write(b"".join(long_stream()))
    process.stdin.flush()
    return process, session


def in_this_process(environment: dict[str, str], *args: str, **options: Any) -> Result:
    """The command where what it says matters, and no process of its own has to be started for it."""
    return CliRunner().invoke(main, [*args, "--url", environment["PERSIST_DATABASE_URL"]], **options)


def shown(environment: dict[str, str], session: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = json.loads(in_this_process(environment, "show", session, "--json").stdout)["messages"]
    return messages


def wait_until_recorded(environment: dict[str, str], session: str) -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for message in shown(environment, session):
            text: str = message["parts"][0]["text"]
            if text.endswith(f"{PIECES - 1} "):
                return text
        time.sleep(0.05)
    raise AssertionError("the stream did not arrive")


def finish(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    return process.communicate(timeout=30)


def test_kill_minus_nine_loses_nothing(environment: dict[str, str]) -> None:
    process, session = start_recording(environment)
    try:
        text = wait_until_recorded(environment, session)
    finally:
        process.kill()
        finish(process)
    assert process.returncode == -signal.SIGKILL
    (message,) = shown(environment, session)
    assert message["parts"] == [{"type": "text", "text": text, "state": "streaming"}]
    assert "… (not finished)" in in_this_process(environment, "show", session).stdout

    rest = [
        {"type": "start", "messageId": "msg_long"},
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": "end"},
        {"type": "text-end", "id": "t"},
        {"type": "finish"},
    ]
    again = in_this_process(environment, "record", "--session", session, "--json", input="\n".join(map(json.dumps, rest)))
    assert again.exit_code == 0, again.stderr
    (message,) = shown(environment, session)
    assert [part["text"] for part in message["parts"]] == [text + "end"]  # its start names the part that was left open


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_recorded(environment: dict[str, str], number: signal.Signals) -> None:
    process, session = start_recording(environment)
    wait_until_recorded(environment, session)
    process.send_signal(number)
    out, err = finish(process)
    assert process.returncode == 128 + number
    assert b"ended     by an interrupt" in out
    assert b"Traceback" not in err
    assert shown(environment, session)[0]["parts"][0]["text"].endswith(f"{PIECES - 1} ")
    # the turn was given up: the next recorder need not take over
    assert in_this_process(environment, "record", "--session", session, input="").exit_code == 0


def test_a_reader_that_leaves_early_is_no_error_worth_a_word(environment: dict[str, str], tmp_path: Path) -> None:
    parts = [
        json.dumps({"type": "text-start", "id": "t"}),
        json.dumps({"type": "text-delta", "id": "t", "delta": "line\n" * 100_000}),
    ]
    recorded = in_this_process(environment, "record", "--session", "new", "--agent", "a", "-q", input="\n".join(parts))
    session = recorded.stdout.strip()
    with (tmp_path / "err").open("wb") as err:
        show = subprocess.Popen([*PERSIST, "show", session], env=environment, stdout=subprocess.PIPE, stderr=err)
        head = subprocess.run(["head", "-n", "2"], stdin=show.stdout, capture_output=True, timeout=30, check=True)
        assert show.stdout is not None
        show.stdout.close()
        show.wait(30)
    assert head.stdout.splitlines()[0].split() == [b"session", session.encode()]
    assert (tmp_path / "err").read_bytes() == b""


def test_exit_codes_and_streams(environment: dict[str, str]) -> None:
    failed = persist(environment, "show", "ses_nobody")
    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (1, "", 1)


def test_exit_codes_where_no_database_is_opened(sqlite_url: str) -> None:
    environment = environment_of(sqlite_url)
    assert persist(environment, "show").returncode == 2
    assert persist(environment, "nonsense").returncode == 2
    assert persist(environment, "--version").returncode == 0


def test_a_recorder_without_any_input(environment: dict[str, str]) -> None:
    closed = subprocess.run(
        ["sh", "-c", '"$@" <&-', "sh", *PERSIST, "record", "--session", "new", "--agent", "a"],
        env=environment,
        capture_output=True,
        timeout=30,
    )
    assert closed.returncode == 2
    assert b"Traceback" not in closed.stderr


def test_help_does_not_import_what_it_does_not_need() -> None:
    code = """
import sys
from persist.cli import main
main(["-h"], standalone_mode=False)
print([name for name in ("alembic", "rich", "psycopg") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
