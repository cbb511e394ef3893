"""Processes that write at once, and one that is killed in the middle of a call."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from persist import Store
from persist.integrations.google_adk import PersistArtifactService, PersistSessionService
from persist.schema.migrate import upgrade
from tests.integrations.google_adk.conftest import Do
from tests.integrations.google_adk.scenes import NAMES, create, event, get, said


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
            worker.stdin.write("\n")
            worker.stdin.flush()
        assert [worker.wait(120) for worker in workers] == [0, 0, 0]
        found = do(get(service))
        wanted = sorted(f"{name} {number}" for name in names for number in range(10))
        assert sorted(said(found)) == wanted
        assert found.state == {f"user:{name}.{number}": number for name in names for number in range(10)}
        file: dict[str, Any] = {**NAMES, "session_id": "talk", "filename": "shared"}
        assert do(files.list_versions(**file)) == list(range(30))
        saved = [do(files.load_artifact(**file, version=number)).inline_data.data.decode() for number in range(30)]
        assert sorted(saved) == wanted
