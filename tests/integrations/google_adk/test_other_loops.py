"""Services on another event loop than asyncio's, in several loops at once, and without the framework."""

import asyncio
import subprocess
import sys
import threading

import pytest
import trio
from google.adk.sessions.session import Session

from persist import AsyncStore, Store
from persist.errors import UnsupportedEngine
from persist.integrations.google_adk import PersistArtifactService, PersistSessionService
from tests.integrations.google_adk.conftest import Do
from tests.integrations.google_adk.scenes import NAMES, create, event, get, said
from tests.subprocesses import ROOT


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

        threads = [threading.Thread(target=talk, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        stored = asyncio.run(get(service))
        assert sorted(said(stored)) == sorted(said(session)) == [f"{name}{number}" for name in "abc" for number in range(5)]


def test_without_the_framework_the_extra_is_named() -> None:
    program = "import sys; sys.modules['google.adk'] = None\nimport persist.integrations.google_adk"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert "pip install 'agent-persist[google-adk]'" in done.stderr
