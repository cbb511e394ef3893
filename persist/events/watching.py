"""Following the event log: every event once, in order, from a given number on, with no transaction open between reads."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import func, select

from persist.db.transactions.notifier import Outage
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_snapshot
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_count, check_label
from persist.errors import InvalidValue, PersistError
from persist.events.first_snapshots import settled_now
from persist.events.models import event_log
from persist.events.repository import Events, read_all
from persist.events.schemas import ALL, Event

_BATCH = 200
"""Events in one read, and so the most held in memory."""

_MAX_WAIT = 5.0
"""The longest wait in seconds. After each wait the log is read again, even without a notification."""

_SOON, _LATER = 0.005, 0.5
"""Seconds until the next look while events wait for a transaction with a smaller position: first, and at most."""


def last_number(work: UnitOfWork, stream: str) -> int:
    """The number behind which the next event comes: that of the stream's last one, or the settled position of all streams."""
    if stream == ALL:
        return settled_now(work)
    newest = select(func.coalesce(func.max(event_log.c.seq), 0)).where(event_log.c.stream_id == work.label("stream_id", stream))
    return int(work.select(newest).scalar_one())


class Watcher:
    """A reader of the log and its place. For one thread at a time. No connection is used before the first step."""

    def __init__(self, runtime: Runtime, stream_id: str, after: int, timeout: float | None) -> None:
        runtime.check_usable()
        self._runtime = runtime
        self._stream = check_label("stream_id", stream_id)
        if not self._stream:
            raise InvalidValue("stream_id", "it is empty.")
        self._after = check_count("after", after)
        if timeout is not None and not 0 <= timeout < threading.TIMEOUT_MAX:
            raise InvalidValue("timeout", "expected seconds, 0 or more, or None.")
        self._timeout = timeout
        self._deadline: float | None = None
        self._outage = Outage(runtime.errors, "the log of events cannot be read")
        self._held_back: float | None = None
        """Seconds to wait if there are events that cannot be read yet."""
        self._wakeups = runtime.dialect.event_log.wakeups(runtime.listen_url)
        runtime.watchers.add(self._wakeups)

    def check(self) -> None:
        """Call before a step, in the caller's thread. Raises TransactionOpen if the caller's transaction would block the read."""
        if self._runtime.one_connection:
            self._runtime.refuse_inside_transaction("watch()")

    def step(self) -> list[Event] | None:
        """The next events, [] if none came for a while; None after the timeout, or if the store is closed."""
        events = self.poll()
        if events == []:
            self.wait()
        return events

    def poll(self) -> list[Event] | None:
        """The next events, [] if there are none, without waiting; None after the timeout, or if the store is closed."""
        with self._wakeups.reading:
            if self._wakeups.stopped or self._runtime.closed:
                return None
            events = self._read()
        if events:
            self._after = events[-1].position if self._stream == ALL else events[-1].seq
            self._deadline = None
            self._wakeups.found()
            return events
        if self._timeout is not None:
            now = time.monotonic()
            self._deadline = self._deadline or now + self._timeout
            if now >= self._deadline:
                return None
        return []

    def wait(self) -> None:
        """Wait for a notification of new events, 5 s at most. It can be interrupted at any moment."""
        left = _MAX_WAIT if self._deadline is None else max(0.0, min(_MAX_WAIT, self._deadline - time.monotonic()))
        if self._outage.is_on:
            self._wakeups.pause(min(left, self._outage.pause()))
        elif self._held_back is not None:
            self._wakeups.wait(min(left, self._held_back))
            self._held_back = min(self._held_back * 1.5, _LATER)
        else:
            self._wakeups.wait(left)

    def _read(self) -> list[Event]:
        """The next events, from a read transaction that ends before this returns. [] during an outage, which is only logged."""
        try:
            if self._stream == ALL:
                events = self._read_all()
            else:
                events = in_snapshot(self._runtime, lambda work: Events(work).read(self._stream, after=self._after, limit=_BATCH))
        except PersistError as error:
            if not self._outage.met(error):
                raise
            return []
        self._outage.is_over()
        self._outage.permitted = True
        return events

    def _read_all(self) -> list[Event]:
        events, behind = in_snapshot(self._runtime, lambda work: read_all(work, self._after, _BATCH))
        if behind and not events:
            settled = in_snapshot(self._runtime, settled_now)
            events, behind = in_snapshot(self._runtime, lambda work: read_all(work, self._after, _BATCH, settled=settled))
        if events or not behind:
            self._held_back = None
        else:
            self._held_back = self._held_back or _SOON
        return events

    def stop(self) -> None:
        """Called from another thread: end the current wait; further steps return None."""
        self._wakeups.stop()

    def close(self) -> None:
        """Release the watcher's resources, after its last step."""
        self._runtime.watchers.discard(self._wakeups)
        self._wakeups.close()


def watch(watcher: Watcher) -> Iterator[Event]:
    """The events of `Store.watch`, one by one."""
    try:
        while True:
            watcher.check()
            events = watcher.step()
            if events is None:
                return
            yield from events
    finally:
        watcher.close()


async def watch_async(watcher: Watcher) -> AsyncIterator[Event]:
    """The events of `AsyncStore.watch`. A thread of its own reads a batch when the one before has been consumed."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="persist-watch")
    loop = asyncio.get_running_loop()
    try:
        while True:
            watcher.check()
            events = await loop.run_in_executor(thread, watcher.step)
            if events is None:
                return
            for event in events:
                yield event
    finally:
        watcher.stop()
        thread.submit(watcher.close)
        thread.shutdown(wait=False)
