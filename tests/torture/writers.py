"""Writers and workers of several kinds that go on while their server does not, and whether what they were told is so."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

from persist import AsyncStore, Store
from persist.errors import EffectUnknown, NotFound, PersistError, Unavailable
from persist.workflows import AsyncWorker, Worker
from persist.workflows.schemas import WorkflowRun
from tests.torture.outage_hosts import Host
from tests.torture.scenario import Tally
from tests.torture.state import DEEDS, Deed, attempt, judge

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


# ----------------------------------------------------------------
# Workers on both faces beside a database that goes and comes: what was queued is done, each effect once, nothing is stuck.


_KINDS = ("job", "later")
_AT_FIRST = 4
_PAUSE, _STUCK = 0.02, 30.0
_OPTIONS = {"lease": timedelta(minutes=5), "concurrency": 3}


class WorkersBeside:
    """One worker on each face, over stores that stay open. `posted`: how often the effect of each run was done."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.posted: Counter[str] = Counter()
        self._ready = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._work, self._work_async)]
        self._ends: list[Callable[[], object]] = []

    def __enter__(self) -> "WorkersBeside":
        self._store = Store.open(self._url)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            end()
        for thread in self._threads:
            thread.join(_STUCK)
        self._store.close()

    def go_on(self, meanwhile: Callable[[], None], tally: Tally) -> None:
        """Queue runs before, in and after `meanwhile()`, and look whether each that was acknowledged is done."""
        told: list[str] = []
        over = threading.Event()
        for _ in range(_AT_FIRST):
            self._queue(told, tally)
        queueing = threading.Thread(target=self._go_on_queueing, args=(over, told, tally))
        queueing.start()
        try:
            meanwhile()
        finally:
            over.set()
            queueing.join(_STUCK)
        ended = time.monotonic()
        while not (done := self._is_done(tally)) and time.monotonic() < ended + _STUCK:
            time.sleep(_PAUSE)
        if not done:
            tally.problems.append(f"{_STUCK:.0f} s after an outage work is still stuck: {self._left()}")
        tally.acknowledged += len(told)
        self._judge(told, tally)

    def _judge(self, told: list[str], tally: Tally) -> None:
        runs = self._store.workflows.runs
        for id in told:
            try:
                status = str(runs.get(id).status)
            except NotFound:
                status = "gone"
            tally.lost += status != "succeeded" or self.posted[id] == 0
        tally.problems += [f"the effect of {id} was done {count} times" for id, count in self.posted.items() if count > 1]
        if failed := runs.count(status=["failed", "cancelled"]):
            tally.problems.append(f"{failed} runs have failed")
        if any(not thread.is_alive() for thread in self._threads):
            tally.problems.append("a worker has ended")

    def _is_done(self, tally: Tally) -> bool:
        try:
            return self._left() == 0
        except Unavailable as error:
            tally.errors[f"Unavailable ({error.outcome})"] += 1
            return False

    def _left(self) -> int:
        return self._store.workflows.runs.count(status=["queued", "running", "paused"])

    def _go_on_queueing(self, over: threading.Event, told: list[str], tally: Tally) -> None:
        while not over.wait(_PAUSE):
            self._queue(told, tally)

    def _queue(self, told: list[str], tally: Tally) -> None:
        about = {"trigger_id": "t", "current_phase": "begin", "status": "queued", "max_attempts": 1000}
        try:
            with self._store.begin() as tx:
                run = tx.workflows.runs.create(_KINDS[len(told) % len(_KINDS)], **about)  # type: ignore[arg-type]  # of str
            told.append(run.id)
        except Unavailable as error:
            tally.errors[f"Unavailable ({error.outcome})"] += 1

    # -- the workers

    def _work(self) -> None:
        with Store.open(self._url) as store:
            worker = Worker(store, {"job": lambda run: self._do(store, worker, run)}, retry=_at_once, **_OPTIONS)  # type: ignore[arg-type]  # of timedelta and int
            self._ends.append(worker.stop)
            worker.run(signals=False)

    def _do(self, store: Store, worker: Worker, run: WorkflowRun) -> None:
        time.sleep(_PAUSE)
        try:
            with worker.step(run, "post") as step:
                if step.due:
                    self.posted[run.id] += 1
        except EffectUnknown:  # the answer to its beginning or its end was lost: look at the world
            if self.posted[run.id]:
                store.workflows.effects.complete(run.id, "post")
                return
            with worker.step(run, "post", retry=True):
                self.posted[run.id] += 1

    def _work_async(self) -> None:
        asyncio.run(self._works_async())

    async def _works_async(self) -> None:
        async with await AsyncStore.open(self._url) as store:

            async def do(run: WorkflowRun) -> None:
                await self._do_async(store, worker, run)

            worker = AsyncWorker(store, {"later": do}, retry=_at_once, **_OPTIONS)  # type: ignore[arg-type]  # of timedelta and int
            self._ends.append(partial(asyncio.get_running_loop().call_soon_threadsafe, worker.stop))
            await worker.run(signals=False)

    async def _do_async(self, store: AsyncStore, worker: AsyncWorker, run: WorkflowRun) -> None:
        await asyncio.sleep(_PAUSE)
        try:
            async with worker.step(run, "post") as step:
                if step.due:
                    self.posted[run.id] += 1
        except EffectUnknown:
            if self.posted[run.id]:
                await store.workflows.effects.complete(run.id, "post")
                return
            async with worker.step(run, "post", retry=True):
                self.posted[run.id] += 1


def _at_once(run: WorkflowRun, error: BaseException) -> timedelta:
    return timedelta(0)
