"""examples/dashboard.py as a process, followed by a real HTTP client while another process records, on both databases."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from persist import Store
from tests.cli.test_processes import PERSIST, PIECES, long_stream
from tests.markdown import ROOT

pytestmark = pytest.mark.one_database

Answer = tuple[int, dict[str, Any]]


@pytest.fixture
def environment(database_url: str) -> dict[str, str]:
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return {**os.environ, "PERSIST_DATABASE_URL": database_url, "PYTHONPATH": path}


@pytest.fixture
def session(database_url: str) -> str:
    """The log is on, and there is somebody to listen to."""
    with Store.open(database_url, events=True) as store, store.begin() as tx:
        return tx.chat.sessions.create(agent="build", model={}).id


@pytest.fixture
def dashboard(session: str, database_url: str, environment: dict[str, str]) -> Iterator[httpx.Client]:
    """A client of a running dashboard, which ends properly when it is told to."""
    line = [sys.executable, str(ROOT / "examples" / "dashboard.py"), "--url", database_url, "--port", "0"]
    process = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        with httpx.Client(base_url=address, timeout=30, trust_env=False) as client:
            yield client
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        assert "Traceback" not in errors
        assert "ResourceWarning" not in errors
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def recorder(environment: dict[str, str], session: str) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts a process that has been sent the long stream, and waits for more."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*PERSIST, "record", "--session", session, "-q"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        started.append(process)
        assert process.stdin is not None
        process.stdin.write(b"".join(long_stream()))
        process.stdin.flush()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def frames(response: httpx.Response) -> Iterator[Answer]:
    """(id, data) of each event; comments are left out."""
    id = None
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            id = int(value)
        elif name == "data":
            assert id is not None
            yield id, json.loads(value)


def text_of(answers: list[Answer]) -> str:
    """What was said so far."""
    changes = [change for _, event in answers for change in event["data"].get("changes", ())]
    return "".join(change["row"]["delta"] for change in changes if change["table"] == "chat_part_deltas")


def take_until(client: httpx.Client, url: str, enough: Callable[[list[Answer]], bool], after: int | None = None) -> list[Answer]:
    """Follow from an id until there is enough, then leave in the middle of the response."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    answers: list[Answer] = []
    with client.stream("GET", url, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        for answer in frames(response):
            answers.append(answer)
            if enough(answers):
                return answers
    raise AssertionError("the response ended")


def test_a_recorder_elsewhere_is_seen_live_and_a_client_that_comes_back_goes_on(
    dashboard: httpx.Client, session: str, recorder: Callable[[], subprocess.Popen[bytes]]
) -> None:
    """By a client that follows everything, and by one that follows the session."""
    seen = {
        url: take_until(dashboard, url, lambda answers: len(answers) == 1) for url in ("/events", f"/events?stream={session}")
    }
    assert all(first[0][1]["type"] == "session.created" for first in seen.values())
    process = recorder()
    said = "".join(f"{number} " for number in range(PIECES))
    # each leaves again and again, in the middle, and says each time what it saw last
    while any(text_of(answers) != said for answers in seen.values()):
        for url, answers in seen.items():
            if text_of(answers) != said:
                seen[url] = answers + take_until(dashboard, url, enough(answers, said), after=answers[-1][0])
    assert process.poll() is None  # all of it came while the stream was still open
    for answers in seen.values():
        ids = [id for id, _ in answers]
        assert ids == list(range(1, len(ids) + 1))
        assert {event["stream_id"] for _, event in answers} == {session}
        assert [event["seq"] for _, event in answers] == ids


def enough(seen: list[Answer], said: str) -> Callable[[list[Answer]], bool]:
    """Whether a client has 150 answers more, or all that was said."""
    return lambda new: len(new) >= 150 or text_of(seen + new) == said


def test_what_else_it_answers_and_that_it_ends_what_it_serves(dashboard: httpx.Client) -> None:
    page = dashboard.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "new EventSource(" in page.text
    assert dashboard.get("/nothing").status_code == 404
    assert dashboard.post("/events").status_code == 404
    for last in ("x", "-1", "1e3", "\N{ARABIC-INDIC DIGIT THREE}", "9" * 30):
        assert dashboard.get("/events", headers={b"Last-Event-ID": last.encode()}).status_code == 400
    response = dashboard.send(dashboard.build_request("GET", "/events"), stream=True)
    assert next(frames(response))[0] == 1  # the fixture tells the server to stop while this response is open
