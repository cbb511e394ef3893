"""Following the log: every event once, in order, from wherever one was, with no transaction held between two of them."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

from persist.db.checks import check_count
from persist.db.runtime import Runtime
from persist.db.types import check_label
from persist.db.work import Work
from persist.errors import InvalidValue, StoreBusy, Unavailable
from persist.events.repository import Events
from persist.events.schemas import ALL, Event

log = logging.getLogger("persist")

_BATCH = 200
"""Events read at once: all that is ever in memory."""

_LONGEST = 5.0
"""Seconds of one wait; the next one begins with a look."""

_OUTAGE = 1.0


class Watcher:
    """One reader's place in the log. Used by one thread at a time; it holds nothing until its first step."""

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
        self._outage = False
        self._wakeups = runtime.dialect.wakeups(runtime.listen_url)
        runtime.watchers.add(self._wakeups)

    def check(self) -> None:
        """Before a step, where whoever waits for it is: TransactionOpen where they would wait for themselves."""
        if self._runtime.one_connection:
            self._runtime.refuse_inside_transaction("watch()")

    def step(self) -> list[Event] | None:
        """The next events, or none after a while; None when the time is over, or the store is closed."""
        events = self.look()
        if events == []:
            self.wait()
        return events

    def look(self) -> list[Event] | None:
        """The next events, without waiting for them; None as for `step`."""
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
        """Until there may be more, or for a while; it can be interrupted at any moment."""
        left = _LONGEST if self._deadline is None else max(0.0, min(_LONGEST, self._deadline - time.monotonic()))
        if self._outage:
            self._wakeups.pause(min(left, _OUTAGE))
        else:
            self._wakeups.wait(left)

    def _read(self) -> list[Event]:
        """In a snapshot that ends before anybody sees what it held. An outage is waited for, not reported."""
        work = Work(self._runtime, writable=False, looks=True)
        try:
            work.begin()
            try:
                events = Events(work).read(self._stream, after=self._after, limit=_BATCH)
            except BaseException:
                work.rollback()
                raise
            work.end_read()
        except (Unavailable, StoreBusy) as error:
            if not self._outage:
                log.warning("the log of events cannot be read now: %s", error)
            self._outage = True
            return []
        self._outage = False
        return events

    def stop(self) -> None:
        """From another thread: end a wait early, and take no further step."""
        self._wakeups.stop()

    def close(self) -> None:
        """After the last step."""
        self._runtime.watchers.discard(self._wakeups)
        self._wakeups.close()


def watch(watcher: Watcher) -> Iterator[Event]:
    """The events, one by one."""
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
    """The same for a task: the reader has a thread of its own, and reads on when what it read has been taken."""
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
