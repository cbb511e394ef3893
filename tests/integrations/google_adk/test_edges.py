"""What the services refuse, hide and cost: wrong kinds, secrets, round trips; other loops and processes; the example."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.genai import types

from persist import AsyncStore, Store
from persist.cli import main
from persist.errors import InvalidValue, StoreCorrupt, UnsupportedEngine
from persist.integrations.google_adk import InvalidArgument, PersistArtifactService, PersistMemoryService, PersistSessionService
from persist.schema.migrate import upgrade
from tests.at_once import together
from tests.integrations.google_adk.scenes import APP, FILE, NAMES, create, event, get, said, spoiled_reads
from tests.integrations.kits import Do
from tests.integrations.telling import SECRET, require_silence
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, require
from tests.subprocesses import ROOT

SESSION: dict[str, Any] = {**NAMES, "session_id": "talk"}


def test_arguments_of_a_session_service(store: Store | AsyncStore, database_url: str, do: Do) -> None:
    service = PersistSessionService(store)
    session = do(create(service))
    valid: dict[str, dict[str, Any]] = {
        "create_session": {**NAMES, "state": {"a": 1}, "session_id": None},
        "get_session": {**SESSION, "config": GetSessionConfig(num_recent_events=1)},
        "list_sessions": NAMES,
        "get_user_state": NAMES,
        "append_event": {"session": session, "event": event("hi", {"a": 1})},
        "delete_session": {**SESSION, "session_id": "other"},
    }
    require_typed_errors(lambda: service, valid, do=do, database_url=database_url, error=InputValidationError)


def test_arguments_of_an_artifact_service(store: Store | AsyncStore, database_url: str, do: Do) -> None:
    service, file = PersistArtifactService(store), {**SESSION, "filename": "f"}
    part = types.Part(text="hi")
    do(service.save_artifact(**file, artifact=part))
    valid: dict[str, dict[str, Any]] = {
        "save_artifact": {**file, "artifact": part, "custom_metadata": {"a": 1}},
        "load_artifact": {**file, "version": 0},
        "list_artifact_keys": SESSION,
        "list_versions": file,
        "list_artifact_versions": file,
        "get_artifact_version": {**file, "version": 0},
        "delete_artifact": {**file, "filename": "other"},
    }
    require_typed_errors(lambda: service, valid, do=do, database_url=database_url, error=InputValidationError)


def test_arguments_of_a_memory_service(store: Store | AsyncStore, database_url: str, do: Do) -> None:
    service, sessions = PersistMemoryService(store), PersistSessionService(store)
    session = do(create(sessions))
    do(sessions.append_event(session, event()))
    entry = MemoryEntry(content=types.Content(role="user", parts=[types.Part(text="hi")]))
    valid: dict[str, dict[str, Any]] = {
        "add_session_to_memory": {"session": session},
        "add_events_to_memory": {**SESSION, "events": [event()], "custom_metadata": {"a": 1}},
        "add_memory": {**NAMES, "memories": [entry], "custom_metadata": {"a": 1}},
        "search_memory": {**NAMES, "query": "hi"},
        "delete_memory": {**NAMES, "memory_id": "other"},
    }
    require_typed_errors(lambda: service, valid, do=do, database_url=database_url, error=InputValidationError)


@pytest.mark.parametrize("kind", [PersistSessionService, PersistArtifactService, PersistMemoryService])
@pytest.mark.parametrize("wrong", WRONG, ids=KINDS)
def test_what_is_no_store(kind: Any, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="expected a Store or an AsyncStore"):
        kind(wrong)


ROWS = (
    Row("create_session", 2, goal=2),
    Row("append_event", 2, goal=2),
    Row("get_session", 1, goal=1),
    Row("list_sessions", 1, goal=1),
    Row("get_user_state", 1, goal=1),
    Row("delete_session", 1, goal=1),
    Row("save_artifact", 1, goal=1),
    Row("load_artifact", 1, goal=1),
    Row("save_large_artifact", 1, goal=1),
    Row("load_large_artifact", 2, goal=2),
    Row("list_artifact_keys", 1, goal=1),
    Row("list_artifact_versions", 1, goal=1),
    Row("delete_artifact", 1, goal=1),
    Row("add_session_to_memory", 2, goal=2),
    Row("search_memory", 2, goal=2),
)


def test_a_method_keeps_its_bound(meter: Meter, do: Do) -> None:
    with Store.open(meter.url) as store:
        sessions, files, memories = PersistSessionService(store), PersistArtifactService(store), PersistMemoryService(store)
        session: Session = do(create(sessions, {"app:a": 1, "user:b": 2, "c": 3}))
        ids = iter(f"new-{number}" for number in range(100))
        file: dict[str, Any] = {**NAMES, "session_id": "talk", "filename": "f"}
        part, large = (types.Part(inline_data=types.Blob(data=b"x" * size, mime_type="a/b")) for size in (1, 500_000))
        picture = {**file, "filename": "g"}
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "create_session": lambda: create(sessions, {"app:a": 1, "user:b": 2, "c": 3}, id=next(ids)),
            "append_event": lambda: sessions.append_event(session, event(delta={"app:a": 1, "user:b": 2, "c": 3})),
            "get_session": lambda: get(sessions),
            "list_sessions": lambda: sessions.list_sessions(app_name="app"),
            "get_user_state": lambda: sessions.get_user_state(**NAMES),
            "save_artifact": lambda: files.save_artifact(**file, artifact=part),
            "load_artifact": lambda: files.load_artifact(**file),
            "save_large_artifact": lambda: files.save_artifact(**picture, artifact=large),
            "load_large_artifact": lambda: files.load_artifact(**picture),
            "list_artifact_keys": lambda: files.list_artifact_keys(**NAMES, session_id="talk"),
            "list_artifact_versions": lambda: files.list_artifact_versions(**file),
            "add_session_to_memory": lambda: memories.add_session_to_memory(session),
            "search_memory": lambda: memories.search_memory(**NAMES, query="hi there"),
            "delete_artifact": lambda: files.delete_artifact(**file),
            "delete_session": lambda: sessions.delete_session(**NAMES, session_id="talk"),
        }
        bounds = {row.name: row.bound for row in ROWS}
        for name, call in calls.items():
            do(call())  # statements are prepared at their first use
            require(complaint(name, bounds[name], meter.flights(partial(do_call, do, call), bound=bounds[name])))


def do_call(do: Do, call: Callable[[], Awaitable[Any]]) -> None:
    do(call())


# What is stored stands in no error of the services, nor in those that one comes from.


UNREADABLE = {
    "a value": json.dumps({"author": [SECRET], "content": [SECRET], "text": [SECRET], "inline_data": SECRET}),
    "cut": f'["{SECRET}",',
    "deep": "[" * 5000,
}


@pytest.mark.parametrize("bad", UNREADABLE)
def test_what_cannot_be_read_is_not_told(
    sessions: PersistSessionService,
    artifacts: PersistArtifactService,
    memories: PersistMemoryService,
    do: Do,
    execute: Callable[[str], int],
    bad: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for call in spoiled_reads(sessions, artifacts, memories, do, execute, UNREADABLE[bad]):
        with pytest.raises(StoreCorrupt, match="cannot be read as") as caught:
            do(call)
        require_silence(caught, caplog)


def test_states_metadata_and_references_that_are_none_are_not_told(
    sessions: PersistSessionService, artifacts: PersistArtifactService, do: Do, execute: Callable[[str], int]
) -> None:
    do(create(sessions, {"a": 1}))
    do(artifacts.save_artifact(**FILE, artifact=types.Part(text="x")))
    assert execute(f"UPDATE app_session_state SET value = '[\"{SECRET}\",'")
    assert execute(f"UPDATE app_artifact_versions SET metadata_text = '[\"{SECRET}\",'")
    keyed = {"author": "x", "actions": {"artifact_delta": {SECRET: "no number"}}}
    do(create(sessions, id="other"))
    do(sessions.append_event(do(get(sessions, "other")), event("hello")))
    assert execute(f"UPDATE app_session_events SET data = '{json.dumps(keyed)}'")
    listed, version = sessions.list_sessions(app_name=APP), artifacts.get_artifact_version(**FILE)
    calls: list[Any] = [get(sessions), get(sessions, "other"), listed, version]
    for call in calls:
        with pytest.raises(StoreCorrupt) as caught:
            do(call)
        require_silence(caught)
    reference = json.dumps({"file_data": {"file_uri": f"artifact://{SECRET}"}})
    assert execute(f"UPDATE app_artifact_versions SET part = '{reference}'")
    with pytest.raises(InvalidValue, match="Invalid artifact reference") as refused:
        do(artifacts.load_artifact(**FILE))
    require_silence(refused)


def test_what_is_refused_is_not_told(sessions: PersistSessionService, artifacts: PersistArtifactService, do: Do) -> None:
    session = do(create(sessions))
    spoilt = event("hello")
    object.__setattr__(spoilt, "author", [SECRET])
    wrong: Any = {"text": [SECRET]}
    calls: list[Any] = [sessions.append_event(session, spoilt), artifacts.save_artifact(**FILE, artifact=wrong)]
    for call in calls:
        with pytest.raises(InvalidValue) as caught:
            do(call)
        require_silence(caught)


# The example survives its kill, and the command line shows what it left.


def run(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / "examples" / "google_adk_app.py"), "--url", url, *options]
    return subprocess.run(line, capture_output=True, text=True, timeout=240, check=False)


def test_the_example_survives_its_kill_and_is_shown(database_url: str, tmp_path: Path) -> None:
    upgrade(database_url)
    killed = run(database_url, "--crash-in", "Faro")
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout.splitlines() == ["booking Lisbon", "booking Porto", "booking Faro"]
    resumed = run(database_url)
    assert resumed.returncode == 0
    assert resumed.stdout.splitlines() == [
        "going on after 6 events",
        "booking Faro",
        "agent: Booked: Lisbon, Porto, Faro.",
        "state: ['Lisbon', 'Porto', 'Faro'], last Faro",
        "artifacts: ['user:Faro.txt', 'user:Lisbon.txt', 'user:Porto.txt']",
    ]
    (id,) = CliRunner().invoke(main, ["ls", "app_sessions", "--url", database_url, "-q"]).output.split()
    with Store.open(database_url) as store:
        one = store.app_sessions.sessions.get(id)
    for known in (id, f"{one.app_name}/{one.user_id}/{one.session_id}"):
        shown = CliRunner().invoke(main, ["show", known, "--url", database_url])
        assert shown.exit_code == 0
        assert "Booked: Lisbon, Porto, Faro." in shown.output
    file = tmp_path / "trip.jsonl"
    exported = CliRunner().invoke(main, ["export", str(file), "--session", id, "--url", database_url])
    assert exported.exit_code == 0
    assert "app_session_events" in file.read_text(encoding="utf-8")


# Services on another event loop than asyncio's, in several loops at once, and without the framework.


def test_on_trio_a_store_is_used_from_threads(database_url: str) -> None:
    async def story() -> Session:
        service = PersistSessionService(store)
        session = await create(service)
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(service.append_event, session, event(f"{number}"))
        assert await PersistArtifactService(store).list_artifact_keys(**NAMES) == []
        return await get(service)

    with Store.open(database_url) as store:
        assert sorted(said(trio.run(story))) == list("01234")


def test_on_trio_an_async_store_is_refused(database_url: str, do: Do) -> None:
    store = do(AsyncStore.open(database_url))
    service = PersistSessionService(store)
    with pytest.raises(UnsupportedEngine, match="give the adapter a Store"):
        trio.run(lambda: create(service))
    do(store.close())


def test_event_loops_in_several_threads_share_a_service(database_url: str) -> None:
    with Store.open(database_url) as store:
        service = PersistSessionService(store)
        session = asyncio.run(create(service))

        def talk(name: str) -> None:
            async def story() -> None:
                for number in range(5):
                    await service.append_event(session, event(f"{name}{number}"))

            asyncio.run(story())

        together([partial(talk, name) for name in "abc"])
        stored = asyncio.run(get(service))
        assert sorted(said(stored)) == sorted(said(session)) == [f"{name}{number}" for name in "abc" for number in range(5)]


# Processes that write at once, and one that is killed in the middle of a call.


@pytest.mark.parametrize("after", [1, 7, 20])
def test_a_killed_process_leaves_whole_events(database_url: str, spawn: Callable[..., Any], do: Do, after: int) -> None:
    upgrade(database_url)
    worker = spawn("append", "talk")
    printed = [int(worker.stdout.readline()) for _ in range(after)]
    time.sleep(after * 0.0004)
    worker.kill()
    worker.wait(60)
    with Store.open(database_url) as store:
        service = PersistSessionService(store)
        found = do(get(service))
        count = len(found.events)
        assert count >= len(printed)
        assert said(found) == [f"{number}" for number in range(count)]
        assert found.state == {"n": count - 1, "user:n": count - 1, "app:n": count - 1}
        do(service.append_event(found, event("again", timestamp=1e6)))
        assert said(do(get(service)))[-1] == "again"


def test_processes_share_a_session_and_an_artifact(database_url: str, spawn: Callable[..., Any], do: Do) -> None:
    upgrade(database_url)
    with Store.open(database_url) as store:
        service, files = PersistSessionService(store), PersistArtifactService(store)
        do(create(service))
        names = ["a", "b", "c"]
        workers = [spawn("race", name, stdin=True) for name in names]
        for worker in workers:
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            worker.tell()
        assert [worker.wait(120) for worker in workers] == [0, 0, 0]
        found = do(get(service))
        wanted = sorted(f"{name} {number}" for name in names for number in range(10))
        assert sorted(said(found)) == wanted
        assert found.state == {f"user:{name}.{number}": number for name in names for number in range(10)}
        file: dict[str, Any] = {**NAMES, "session_id": "talk", "filename": "shared"}
        assert do(files.list_versions(**file)) == list(range(30))
        saved = [do(files.load_artifact(**file, version=number)).inline_data.data.decode() for number in range(30)]
        assert sorted(saved) == wanted
