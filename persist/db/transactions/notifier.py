"""Telling other processes what changed, at most every 20 ms: the COMMIT of a NOTIFY holds a lock of the whole server."""

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial

import orjson
from sqlalchemy import Text, literal, select

from persist.db.concurrency.worker_threads import Timer
from persist.db.dialects.errors import Errors
from persist.db.dialects.interface import MAX_PAYLOAD, Notify
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_snapshot
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.json import encode
from persist.errors import NotPermitted, PersistError

log = logging.getLogger("persist")

_FIRST, _LONGEST = 0.05, 0.5
"""Seconds until the next attempt: after the first failure, and at most, so that its end is noticed within a second."""


class Outage:
    """The outage that one worker, follower or watcher is in, if it is in one.

    Thread-safe as far as it has to be. `what` says in the log what cannot be done until it is over. `permitted`: whether the role
    was allowed to do it before; then a refusal is an outage, too: a backup is restored table by table, and its grants come last.
    """

    def __init__(self, errors: Errors, what: str, *, permitted: bool = False) -> None:
        self._errors, self._what, self.permitted = errors, what, permitted
        self._pause = _FIRST
        self.is_on = False
        """Whether the last attempt failed."""
        self.reason = ""
        """What cannot be done, and the error that was met last."""

    def met(self, error: BaseException, *, permitted: bool = False) -> bool:
        """Whether the error means an outage, which then is on: so does a refusal of what was `permitted` before."""
        refusal = self.is_on or self.permitted or permitted
        found = self._errors.is_outage(error) or (refusal and isinstance(error, NotPermitted))
        if found:
            self.failed(error)
        return found

    def failed(self, error: BaseException) -> None:
        """An attempt failed, by whatever error: only the first one is logged."""
        self.reason = f"{self._what}: {error}"
        if not self.is_on:
            self.is_on = True
            log.warning("%s now; trying again: %s", self._what, error)

    def pause(self) -> float:
        """Seconds to wait before the next attempt: longer each time."""
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST)
        return pause

    def is_over(self) -> bool:
        """The database has answered. Whether that ends an outage."""
        was_on, self.is_on, self._pause = self.is_on, False, _FIRST
        return was_on


Tell = Callable[[str], None]
"""Tells the readers of a topic the name of what changed."""

_EVERY = 0.02


class Notifier:
    """Sends the names of what changed under one topic, from the store's timer."""

    def __init__(self, runtime: Runtime, timer: Timer, notify: Notify) -> None:
        self._runtime, self._timer, self._notify = runtime, timer, notify
        self._changed: set[str] = set()
        self._sent_at = 0.0
        self._outage = Outage(runtime.errors, "readers in other processes cannot be notified")
        self.due: float | None = None

    def __call__(self, name: str) -> None:
        if name not in self._changed:
            self._changed.add(name)
            if self.due is None:
                self.due = max(time.monotonic(), self._sent_at + _EVERY)
                self._timer.watch(self)

    def on_timer(self, now: float) -> None:
        self.due, self._sent_at = None, now
        self.flush()

    def flush(self) -> None:
        changed, self._changed = self._changed, set()
        try:
            if changed:
                in_snapshot(self._runtime, partial(self._send, _payloads(changed)))
                self._outage.is_over()
        except PersistError as error:
            self._outage.failed(error)
            self._changed |= changed
            self.due = time.monotonic() + self._outage.pause()
            self._timer.watch(self)

    def _send(self, texts: list[str], work: UnitOfWork) -> None:
        for text in texts:
            list(work.select(select(self._notify(literal(text, Text())))))


class Notifiers:
    """The notifiers of one store, made when first needed."""

    def __init__(self, runtime: Runtime, timer: Timer) -> None:
        self._runtime, self._timer = runtime, timer
        self._by_topic: dict[str, Notifier] = {}

    def of(self, topic: str) -> Tell | None:
        """Tells the readers of a topic; None where they notice by themselves, or are not to be notified."""
        runtime = self._runtime
        if runtime.dialect.in_memory:
            return lambda name: runtime.wake_watchers()
        notify = runtime.dialect.event_log.notification(topic)
        if notify is None or not runtime.settings.notify_followers:
            return None
        if topic not in self._by_topic:
            self._by_topic[topic] = Notifier(runtime, self._timer, notify)
        return self._by_topic[topic]

    def flush(self) -> None:
        for notifier in self._by_topic.values():
            notifier.flush()


def named(text: str) -> list[str]:
    """The names in a notification; none in a text of somebody else."""
    try:
        found = orjson.loads(text)
    except ValueError:
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _payloads(names: Iterable[str]) -> list[str]:
    """JSON lists of the names, each short enough for one notification: the names are labels, which are short themselves."""
    texts, held = [], ""
    for item in map(encode, names):
        if held and len(held) + len(item) > MAX_PAYLOAD:
            texts.append(f"[{held}]")
            held = ""
        held = f"{held},{item}" if held else str(item)
    return [*texts, f"[{held}]"] if held else texts
