"""`persist work` as a process: signals, and health while the database is there, away, and back again."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from persist import Store
from tests.contract.workflows.scenes import queue, stored
from tests.roundtrips.proxy import CountingProxy
from tests.subprocesses import Worker

MODULE = """
import asyncio, time
from persist.workflows import AsyncWorker, Worker

def attentive(run):
    print("began", flush=True)
    while not Worker.current().is_stopping:
        time.sleep(0.01)

def patient(run):
    print("began", flush=True)
    while True:
        time.sleep(0.01)

async def attentive_async(run):
    print("began", flush=True)
    while not AsyncWorker.current().is_stopping:
        await asyncio.sleep(0.01)

async def patient_async(run):
    print("began", flush=True)
    while True:
        await asyncio.sleep(0.01)

def failing(run):
    raise ValueError("no \\x1b[2J good")

sync = {"handlers": {"attentive": attentive, "patient": patient, "failing": failing}, "name": "me"}
async_ = {"handlers": {"attentive": attentive_async, "patient": patient_async, "failing": failing}, "name": "me"}
"""
PATIENCE = 60.0
faces = pytest.mark.parametrize("face", ["sync", "async_"])
Start = Callable[..., Worker]


@pytest.fixture
def start(tmp_path: Path, database_url: str) -> Iterator[Start]:
    """`start(face, …)` starts the command on the test's database, in a folder that has the module."""
    (tmp_path / "jobs.py").write_text(MODULE, encoding="utf-8")
    with ExitStack() as stack:

        def begin(face: str, *args: str, url: str = database_url, **options: Any) -> Worker:
            process = Worker("tests.cli.worker", "work", f"jobs:{face}", "--url", url, *args, cwd=tmp_path, **options)
            stack.callback(process.close)
            return process

        yield begin


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as store:
        yield store


@faces
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_is_at_work_end(store: Store, start: Start, face: str, number: signal.Signals) -> None:
    id, later = queue(store, workflow_name="attentive"), queue(store, workflow_name="attentive")
    process = start(face)
    assert process.stdout.readline() == "me handles attentive, failing, patient, 1 at a time.\n"
    assert process.stdout.readline() == "began\n"
    process.send_signal(number)
    assert process.communicate(PATIENCE)[0] == "Ended: 1 succeeded.\n"
    assert process.returncode == 0
    assert [stored(store, one).status.value for one in (id, later)] == ["succeeded", "queued"]


@faces
def test_a_second_signal_interrupts(store: Store, start: Start, face: str) -> None:
    id = queue(store, workflow_name="patient")
    process = start(face, "--quiet", errors=True)
    assert process.stdout.readline() == "began\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline().endswith(" INFO the worker me stops; handlers that are still at work: 1\n")
    process.send_signal(signal.SIGTERM)
    said = process.communicate(PATIENCE)[0].splitlines()
    run = stored(store, id)
    if face == "sync":
        assert said[-1] == "Interrupted. The runs that were at work can be claimed when their leases are over."
        assert (run.status, run.lease_owner) == ("running", "me")
    else:
        assert said[-1] == "Interrupted. The runs that were at work went back to the queue."
        assert (run.status, run.lease_owner) == ("queued", None)
    assert "Traceback" not in "".join(said)
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.one_database
def test_what_a_handler_raises_is_logged_harmless_for_a_terminal(store: Store, start: Start) -> None:
    queue(store, workflow_name="failing")
    for as_json in (False, True):
        process = start("sync", "--until-idle", *(["--json"] if as_json else []), errors=True)
        lines = process.communicate(PATIENCE)[0].splitlines()
        assert process.returncode == 0
        assert "\x1b" not in "".join(lines)
        if as_json:
            logged = json.loads(lines[1])
            assert logged["message"].endswith("ValueError: no \x1b[2J good")
            assert logged["level"] == "warning"
            assert logged["traceback"].startswith("Traceback (most recent call last):")
        else:
            assert lines[1].endswith("ValueError: no \\x1b[2J good")
            assert lines[2] == "Traceback (most recent call last):"
            queue(store, workflow_name="failing")


def health(url: str) -> tuple[int, dict[str, Any]]:
    connection = HTTPConnection(str(urlsplit(url).netloc), timeout=PATIENCE)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def wait_for(url: str, status: int) -> dict[str, Any]:
    """What the endpoint tells when it has this status."""
    until = time.monotonic() + PATIENCE
    while (told := health(url))[0] != status:
        assert time.monotonic() < until, told
        time.sleep(0.1)
    return told[1]


@faces
def test_health_follows_the_database(store: Store, start: Start, database_url: str, face: str) -> None:
    with ExitStack() as stack:
        url, proxy = database_url, None
        if store.path is None:
            proxy = CountingProxy(database_url)
            stack.callback(proxy.close)
            url = proxy.url
        process = start(face, "--health", "127.0.0.1:0", "--json", url=url)
        about = json.loads(process.stdout.readline())
        place = about.pop("health")
        assert wait_for(place, 200) == {"status": "ok", **about}
        if proxy is None:
            path = Path(database_url.removeprefix("sqlite:///"))
            aside = path.rename(path.with_suffix(".aside"))
            assert "there is no file" in wait_for(place, 503)["reason"]
            aside.rename(path)
            assert wait_for(place, 200)["status"] == "ok"
        else:
            stack.pop_all().close()
            assert wait_for(place, 503)["reason"]
        process.send_signal(signal.SIGTERM)
        assert json.loads(process.communicate(PATIENCE)[0]) == {"ended": {}}
        assert process.returncode == 0
        with pytest.raises(ConnectionRefusedError):
            health(place)
