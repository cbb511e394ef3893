"""A thread that watches, and what it saw."""

import queue
import threading
from typing import Any

from persist.events.schemas import Event

PATIENCE = 30.0


class Follower:
    """Follows a stream from the moment it is made."""

    def __init__(self, store: Any, stream: str = "*", **options: Any) -> None:
        self._seen: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
        self._watching = store.watch(stream, **options)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            for event in self._watching:
                self._seen.put(event)
        except BaseException as error:
            self._seen.put(error)
        else:
            self._seen.put(None)

    def take(self, many: int) -> list[Event]:
        """So many events, as soon as they are there."""
        events = []
        for _ in range(many):
            event = self._seen.get(timeout=PATIENCE)
            if isinstance(event, BaseException):
                raise event
            assert event is not None, "the watch has ended"
            events.append(event)
        return events

    def rest(self) -> list[Event]:
        """What came until the watch ended, which it must."""
        events = []
        while (event := self._seen.get(timeout=PATIENCE)) is not None:
            if isinstance(event, BaseException):
                raise event
            events.append(event)
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return events

    def nothing(self) -> bool:
        """Whether it has seen nothing that was not taken."""
        return self._seen.empty()


def append(store: Any, stream: str, *values: Any) -> None:
    """One transaction with an event for each value."""
    with store.begin() as tx:
        for value in values:
            tx.events.append(stream, "said", value)


def data(events: list[Event]) -> list[Any]:
    return [event.data for event in events]
