"""Telling followers that a recorder wrote: by a notification on Postgres, in place for `:memory:`; a SQLite file tells by itself.

Notifications are sent after the commit and at most every 20 ms, on a connection of the pool: a NOTIFY inside of a chunk's
transaction would hold a lock of the whole server.
"""

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial

from sqlalchemy import Text, literal, select

from persist.chat.following.turn_watch import turn_watch
from persist.db.concurrency.deadline_timer import Timer
from persist.db.dialects.event_log import MAX_PAYLOAD, Notify
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_snapshot
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.json import encode
from persist.errors import PersistError

log = logging.getLogger("persist")

_EVERY = 0.02
_RETRY = 1.0

Announce = Callable[[str], None]
"""Called with the session's id after each commit of its recorder."""


class TurnNotifier:
    """Sends the sessions whose turns changed, from the store's timer."""

    def __init__(self, runtime: Runtime, timer: Timer, notify: Notify) -> None:
        self._runtime, self._timer, self._notify = runtime, timer, notify
        self._changed: set[str] = set()
        self._sent_at = 0.0
        self.due: float | None = None

    def __call__(self, session_id: str) -> None:
        """Notify soon that this session's turn changed."""
        if session_id not in self._changed:
            self._changed.add(session_id)
            if self.due is None:
                self.due = max(time.monotonic(), self._sent_at + _EVERY)
                self._timer.watch(self)

    def on_timer(self, now: float) -> None:
        """Send what is due."""
        self.due, self._sent_at = None, now
        self.flush()

    def flush(self) -> None:
        """Send now. A failure is logged, and tried again a second later."""
        changed, self._changed = self._changed, set()
        try:
            if changed:
                in_snapshot(self._runtime, partial(self._send, _payloads(changed)))
        except PersistError as error:
            log.warning("followers could not be notified: %s", error)
            self._changed |= changed
            self.due = time.monotonic() + _RETRY
            self._timer.watch(self)

    def _send(self, texts: list[str], work: UnitOfWork) -> None:
        for text in texts:
            list(work.select(select(self._notify(literal(text, Text())))))


def announce_rest(announce: Announce) -> None:
    """Send what is not sent yet: the store is about to close."""
    if isinstance(announce, TurnNotifier):
        announce.flush()


def announcer(runtime: Runtime, timer: Timer) -> Announce | None:
    """What recorders of this store call after a commit; None where followers notice by themselves."""
    notify = runtime.dialect.event_log.notify_turns
    if notify is not None:
        return TurnNotifier(runtime, timer, notify) if runtime.settings.notify_followers else None
    return (lambda session_id: turn_watch(runtime).hurry()) if runtime.dialect.in_memory else None


def _payloads(session_ids: Iterable[str]) -> list[str]:
    """JSON lists of the ids, each short enough for one notification. An id too long for that is left out: its follower polls."""
    texts, held = [], ""
    for item in map(encode, session_ids):
        if held and len(held) + len(item) > MAX_PAYLOAD:
            texts.append(f"[{held}]")
            held = ""
        held = f"{held},{item}" if held else str(item)
    return [*texts, f"[{held}]"] if held else texts
