"""Every kind of outage, by the driver's own error for a connection: who waits asks again within a second, and goes on."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from persist import AsyncStore, Store
from persist.db.dialects.postgres.wakeups import Notices
from persist.db.dialects.sqlite.wakeups import FileWakeups
from persist.settings import Settings
from persist.workers.claim_loop import ClaimLoop
from persist.workflows import AsyncWorker, Worker
from tests.contract.chat.scenes import create, eventually, say, text

LONGEST = 1.0
ENOUGH = 12  # transactions meet each outage
MINUTES = timedelta(minutes=5)
_SHORT = 0.002  # what a wait takes in an outage, whatever it was asked for

SQLITE = {
    "busy": ("SQLITE_BUSY", "database is locked"),
    "away": ("SQLITE_CANTOPEN", "unable to open database file"),
    "full": ("SQLITE_FULL", "database or disk is full"),
    "read-only": ("SQLITE_READONLY", "attempt to write a readonly database"),
    "i/o": ("SQLITE_IOERR_WRITE", "disk I/O error"),
}
POSTGRES: dict[str, Callable[[str], Exception]] = {
    "busy": psycopg.errors.LockNotAvailable,
    "away": psycopg.OperationalError,
    "starting": psycopg.errors.CannotConnectNow,
    "full": psycopg.errors.DiskFull,
    "read-only": psycopg.errors.ReadOnlySqlTransaction,
    "i/o": psycopg.errors.IoError,
    "restored: no database": psycopg.errors.InvalidCatalogName,
    "restored: no schema": psycopg.errors.InvalidSchemaName,
    "restored: no table": psycopg.errors.UndefinedTable,
    "restored: no column": psycopg.errors.UndefinedColumn,
    "restored: no key": psycopg.errors.InvalidColumnReference,
    "restored: no grants": psycopg.errors.InsufficientPrivilege,
}


def driver_error(backend: str, kind: str) -> Exception:
    if backend == "postgres":
        return POSTGRES[kind](f"the server says: {kind}")
    name, message = SQLITE[kind]
    error = sqlite3.OperationalError(message)
    error.sqlite_errorname = name
    return error


class Failing:
    """The outage of one store: its transactions get no connection while it is on, and what waits in those threads is noted."""

    def __init__(self, store: Store, backend: str, kind: str, patch: pytest.MonkeyPatch) -> None:
        self.is_on, self.met, self.asked_for = False, 0, list[float]()
        self._error: Callable[[], Exception] = partial(driver_error, backend, kind)
        self._writes = (backend, kind) == ("postgres", "read-only")
        self._threads: set[int] = set()
        connections: Any = store.runtime.connections
        lend = connections.lend
        patch.setattr(store.runtime, "sleep", self._note)

        def lend_or_fail(*, write: bool) -> Any:
            if not self.is_on or (self._writes and not write):  # reading goes on while a server takes no writes
                return lend(write=write)
            self.met += 1
            self._threads.add(threading.get_ident())
            raise self._error()

        patch.setattr(connections, "lend", lend_or_fail)
        sleep, wait, wait_for = asyncio.sleep, threading.Condition.wait, threading.Condition.wait_for

        async def noted_sleep(delay: float, result: Any = None) -> Any:
            self.asked_for += [delay] if self.is_on else []
            return await sleep(min(delay, _SHORT) if self.is_on else delay, result)

        def noted_wait(condition: threading.Condition, timeout: float | None = None) -> bool:
            if not self._concerned():
                return wait(condition, timeout)
            self._note(float("inf") if timeout is None else timeout)
            return wait(condition, _SHORT)

        def noted_wait_for(condition: threading.Condition, check: Callable[[], Any], timeout: float | None = None) -> Any:
            if self._concerned():
                self._note(float("inf") if timeout is None else timeout)
                timeout = _SHORT
            return wait_for(condition, check, timeout)

        patch.setattr(asyncio, "sleep", noted_sleep)
        patch.setattr(threading.Condition, "wait_for", noted_wait_for)
        patch.setattr(threading.Condition, "wait", noted_wait)
        for wakeups in (FileWakeups, Notices):
            patch.setattr(wakeups, "wait", self._noting(wakeups.wait))

    def _concerned(self) -> bool:
        return self.is_on and threading.get_ident() in self._threads

    def _note(self, seconds: float) -> None:
        if self.is_on:
            self.asked_for.append(seconds)

    def _noting(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        def noted(wakeups: Any, timeout: float) -> Any:
            if not self._concerned():
                return wait(wakeups, timeout)
            self._note(timeout)
            return wait(wakeups, _SHORT)

        return noted

    def ends_after_tries(self) -> None:
        """Wait until it was met often enough, and end it."""
        before = self.met
        assert eventually(lambda: self.met >= before + ENOUGH, seconds=5)
        self.is_on = False
        assert self.asked_for
        assert max(self.asked_for) <= LONGEST


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url, events=True) as store:
        yield store


@pytest.fixture
def other(store: Store, database_url: str) -> Iterator[Store]:
    """As another process has it, which no outage meets."""
    with Store.open(database_url, settings=Settings(notify_followers=True)) as other:
        yield other


@pytest.fixture
def outages(store: Store, backend: str, caplog: pytest.LogCaptureFixture) -> Callable[..., None]:
    """Goes through every kind that the database knows; each is logged once by each who waits."""

    def each(meet: Callable[[Failing], None], of: Store = store, *, reading: bool = True) -> None:
        for kind in SQLITE if backend == "sqlite" else POSTGRES:
            if reading and (backend, kind) == ("postgres", "read-only"):
                continue  # a server that takes no writes is read as before
            caplog.clear()
            with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING, "persist"):
                failing = Failing(of, backend, kind, patch)
                meet(failing)
                assert failing.met >= ENOUGH, kind
            waiting: list[Any] = [record.args for record in caplog.records if "trying again" in record.getMessage()]
            said = [args[0] for args in waiting]
            assert said, kind
            assert len(said) == len(set(said)), kind

    return each


@contextmanager
def in_thread(work: Callable[[], object]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield thread
    thread.join(10)
    assert not thread.is_alive()


def queue(store: Store) -> str:
    with store.begin() as tx:
        return str(tx.workflows.runs.create("build", trigger_id="t", current_phase="p", status="queued").id)


class Work:
    """The handler of a worker: an outage begins in it, another run is queued, and both are done once."""

    def __init__(self, other: Store, failing: Failing) -> None:
        self.other, self.failing, self.done = other, failing, list[str]()
        self.queued = [queue(other)]

    def handle(self, run: Any) -> None:
        self.done.append(run.id)
        if len(self.done) == 1:
            self.failing.is_on = True
            self.queued.append(queue(self.other))

    async def handle_async(self, run: Any) -> None:
        self.handle(run)

    def ends(self) -> None:
        assert eventually(lambda: self.failing.is_on)
        self.failing.ends_after_tries()
        assert eventually(lambda: {run.status for run in map(self.other.workflows.runs.get, self.queued)} == {"succeeded"})
        assert self.done == self.queued


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_worker(store: Store, other: Store, outages: Any, asynchronous: bool) -> None:
    def meet(failing: Failing) -> None:
        work = Work(other, failing)
        options: Any = {"poll": MINUTES, "concurrency": 2}
        worker: Any = Worker(store, {"build": work.handle}, **options)
        if asynchronous:
            worker = AsyncWorker(AsyncStore(store), {"build": work.handle_async}, **options)
        with in_thread(lambda: asyncio.run(worker.run(signals=False)) if asynchronous else worker.run()):
            work.ends()
            worker.stop()

    outages(meet, reading=False)


def test_a_lease_is_renewed_as_soon_as_it_can_be(store: Store, other: Store, outages: Any) -> None:
    def meet(failing: Failing) -> None:
        queue(other)
        worker = Worker(store, {"build": print}, lease=MINUTES)
        loop = ClaimLoop(store, worker._options, lambda job: None)
        (job,) = loop._claimed(1, [])
        pauses = list[float]()

        class Over:
            def wait(self, seconds: float) -> bool:
                pauses.append(seconds)
                failing.is_on = failing.met < ENOUGH
                return len(pauses) > 1 and seconds == pauses[0]

        loop._over = Over()  # type: ignore[assignment]  # an event that notes for how long it is waited for
        loop._keep_leases()
        failing.asked_for += pauses[1:-1]
        assert max(failing.asked_for) <= LONGEST
        assert not job.is_over
        other.workflows.runs.complete(job.lease)

    outages(meet, reading=False)


@pytest.fixture(params=[False, True])
def read(store: Store, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Reads what one face follows or watches into a list, until it ends or is enough."""

    async def items(opened: Callable[[Any], Any]) -> AsyncGenerator[Any]:
        if request.param:
            async with aclosing(opened(AsyncStore(store))) as found:
                async for item in found:
                    yield item
        for item in () if request.param else opened(store):
            yield item

    async def read(opened: Callable[[Any], Any], seen: list[Any], enough: Callable[[Any], bool] = lambda item: False) -> None:
        async with aclosing(items(opened)) as found:
            async for item in found:
                seen.append(item)
                if enough(item):
                    return

    return lambda *given: asyncio.run(read(*given))


def test_a_follower(store: Store, other: Store, outages: Any, read: Any) -> None:
    def meet(failing: Failing) -> None:
        session, seen = create(other), list[Any]()

        def told() -> str:
            return "".join(chunk["delta"] for chunk in seen if chunk["type"] == "text-delta")

        with other.record(session) as recorder:
            recorder.feed_many([{"type": "start"}, *text("a", id="one")])
            with in_thread(lambda: read(lambda face: face.follow(session), seen)):
                assert eventually(lambda: told() == "a")
                failing.is_on = True
                recorder.feed_many(text("b", "c", id="two"))
                failing.ends_after_tries()
                assert eventually(lambda: told() == "abc")  # though the news of it came in the outage, and comes once
                recorder.feed({"type": "finish"})
        assert seen[-1]["type"] == "finish"

    outages(meet)


def test_a_follower_whose_calls_are_cancelled(store: Store, other: Store, outages: Any) -> None:
    """As of a host that says something while nothing comes."""

    async def follow(failing: Failing, session: str, recorder: Any) -> None:
        async with AsyncStore(store).follow(session) as follower:
            while (await anext(follower)).get("delta") != "a":
                pass
            failing.is_on = True
            recorder.feed_many(text("b", id="two"))
            while failing.met < ENOUGH or not failing.asked_for:
                with suppress(TimeoutError):
                    await asyncio.wait_for(anext(follower), 0.03)
            failing.is_on = False
            while (await asyncio.wait_for(anext(follower), 20)).get("delta") != "b":
                pass

    def meet(failing: Failing) -> None:
        session = create(other)
        with other.record(session) as recorder:
            recorder.feed_many([{"type": "start"}, *text("a", id="one")])
            asyncio.run(follow(failing, session, recorder))

    outages(meet)


def test_a_watcher_of_events(store: Store, other: Store, outages: Any, read: Any) -> None:
    def meet(failing: Failing) -> None:
        session, seen = create(other), list[Any]()
        with in_thread(lambda: read(lambda face: face.watch(session), seen, lambda event: event.seq == 4)):
            assert eventually(lambda: len(seen) == 1)
            failing.is_on = True
            say(other, session, "one")
            say(other, session, "two")
            failing.ends_after_tries()
            say(other, session, "three")
        assert [event.seq for event in seen] == [1, 2, 3, 4]

    outages(meet)


def test_a_recorder_is_asked_to_stop(store: Store, other: Store, outages: Any) -> None:
    def meet(failing: Failing) -> None:
        session = create(other)
        with store.record(session) as recorder:
            recorder.feed_many([{"type": "start"}, *text("a")])
            failing.is_on = True
            assert not recorder.stop_requested
            other.chat.sessions.request_stop(session)
            failing.ends_after_tries()
            assert eventually(lambda: recorder.stop_requested)

    outages(meet)
