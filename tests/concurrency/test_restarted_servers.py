"""A Postgres server that is restarted in the middle of writers and readers of both faces: every call ends, and none is lost."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.errors import NotPermitted, PersistError, StoreBusy, Unavailable
from persist.schema.migrate import upgrade
from tests.contract.chat.scenes import eventually
from tests.torture.servers import Server, server

RESTARTS = 3
TOLD = (Unavailable, StoreBusy, NotPermitted)
"""What callers may be told while a server ends and starts; the last one by a server that is not ready for clients."""


class Work:
    """What threads and tasks wrote, and what they were told."""

    def __init__(self) -> None:
        self.opened, self.over = threading.Event(), threading.Event()
        self.written: set[str] = set()
        self.unknown: set[str] = set()
        self.told: list[BaseException] = []
        self.reads = 0

    def goes_on(self) -> bool:
        """Whether more is written and read than until now."""
        written, reads = len(self.written), self.reads
        return eventually(lambda: len(self.written) > written + 20 and self.reads > reads)

    def refused(self, id: str | None, error: BaseException) -> None:
        self.told.append(error)
        if id is not None and getattr(error, "outcome", "") == "unknown":
            self.unknown.add(id)

    def of_thread(self, store: Store, name: str) -> None:
        for number in range(10**9):
            if self.over.is_set():
                return
            id = f"{name}-{number}"
            try:
                store.chat.sessions.create(agent="build", model={}, id=id)
                self.written.add(id)
            except BaseException as error:
                self.refused(id, error)
            try:
                store.chat.sessions.list(limit=5)
                self.reads += 1
            except BaseException as error:
                self.refused(None, error)

    async def of_task(self, store: AsyncStore, name: str) -> None:
        for number in range(10**9):
            if self.over.is_set():
                return
            id = f"{name}-{number}"
            try:
                async with store.begin() as tx:
                    await tx.chat.sessions.create(agent="build", model={}, id=id)
                self.written.add(id)
            except BaseException as error:
                self.refused(id, error)
            try:
                async with store.read() as tx:
                    await tx.chat.sessions.list(limit=5)
                self.reads += 1
            except BaseException as error:
                self.refused(None, error)

    def of_loop(self, url: str) -> None:
        async def body() -> None:
            async with AsyncStore.open(url) as store:
                self.opened.set()
                await asyncio.gather(*(self.of_task(store, f"task-{number}") for number in range(3)))

        asyncio.run(body())


@pytest.fixture
def own_server() -> Iterator[Server]:
    with server() as made:
        yield made


def restart(server: Server, how: int) -> None:
    """As `pg_ctl restart` does: fast by SIGINT, immediate by SIGQUIT."""
    running = server.data / "postmaster.pid"
    os.kill(int(running.read_text().split()[0]), how)
    assert eventually(lambda: not running.exists())
    server.stop()
    server.start(wait=False)  # its log says that it was shut down, which waiting would take for the end


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
def test_a_restart_in_the_middle_loses_nothing(own_server: Server, how: int) -> None:
    upgrade(own_server.url)
    work = Work()
    with Store.open(own_server.url) as store:
        threads = [threading.Thread(target=work.of_thread, args=(store, f"thread-{number}")) for number in range(3)]
        threads.append(threading.Thread(target=work.of_loop, args=(own_server.url,)))
        for thread in threads:
            thread.start()
        try:
            assert work.opened.wait(120)  # a server that is restarted before would refuse to open it
            for _ in range(RESTARTS):
                assert work.goes_on()
                restart(own_server, how)
            assert work.goes_on()
        finally:
            work.over.set()
            for thread in threads:
                thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        assert {type(error) for error in work.told} <= set(TOLD), [error for error in work.told if not isinstance(error, TOLD)]
        stored: set[Any] = {row[0] for row in own_server.run("SELECT id FROM persist.chat_sessions")}
        assert work.written <= stored
        assert stored - work.written <= work.unknown
        assert all(isinstance(error, PersistError) for error in work.told)
