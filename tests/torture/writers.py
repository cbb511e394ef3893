"""Writers of several kinds that go on while their server does not, and whether what they were told is so."""

import asyncio
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from persist import AsyncStore, Store
from persist.errors import PersistError
from tests.torture.keyed_writes import DEEDS, Deed, attempt, judge
from tests.torture.outage_hosts import Host
from tests.torture.scenario import Tally

_STREAMS = 8
_GONE_SECONDS = 90


class Writers:
    """Over two stores that stay open: every deed in a thread of its own, again and again, and recorders on both faces."""

    def __init__(self, url: str, **options: Any) -> None:
        self._url, self._options = url, options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "Writers":
        self._thread.start()
        self._store = Store.open(self._url, **self._options)
        self._streaming = self._wait(asyncio.run_coroutine_threadsafe(self._open(), self._loop))
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(asyncio.run_coroutine_threadsafe(self._streaming.close(), self._loop))
        self._store.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_GONE_SECONDS)
        self._loop.close()

    async def _open(self) -> AsyncStore:
        return await AsyncStore.open(self._url, **self._options)

    def go_on(self, name: str, meanwhile: Any, tally: Tally) -> None:
        """Let them write while `meanwhile()` happens and a little longer, then look whether what they were told is so."""
        with self._store.begin() as tx:
            sessions = [tx.chat.sessions.create(agent="build", model={"provider_id": "p"}).id for _ in range(_STREAMS + 1)]
        hosts = [Host(session, f"m {name} {place}", 100) for place, session in enumerate(sessions)]
        over = threading.Event()
        with ThreadPoolExecutor(len(DEEDS) + 1) as threads:
            done = [threads.submit(self._repeat, deed, f"{deed.name} {name}", over, tally) for deed in DEEDS]
            recorded = [threads.submit(hosts[0].record, self._store)]
            streamed = asyncio.run_coroutine_threadsafe(self._stream(hosts[1:]), self._loop)
            try:
                meanwhile()
            finally:
                over.set()
            for one in (*recorded, streamed):
                self._wait(one)
            for told, deed in zip(done, DEEDS, strict=True):
                for key, error in self._wait(told):
                    judge(deed, self._store, key, error, tally)
        for host in hosts:
            host.check(self._store)
            host.tell(tally)

    def _repeat(self, deed: Deed, name: str, over: threading.Event, tally: Tally) -> list[tuple[str, PersistError | None]]:
        told: list[tuple[str, PersistError | None]] = []
        while not over.is_set():
            key = f"{name} {len(told)}"
            error = attempt(deed, self._store, key, tally)
            told.append((key, error))
            if error is not None:
                time.sleep(0.02)
        return told

    async def _stream(self, hosts: list[Host]) -> None:
        await asyncio.gather(*[host.record_async(self._streaming) for host in hosts])

    def _wait(self, future: Future[Any]) -> Any:
        return future.result(_GONE_SECONDS)
