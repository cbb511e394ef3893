"""The clock of a store that is filled with a past, and the order in which scenes happen in it."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

Scene = Iterator[datetime]
"""What happens to one subject: a generator that yields the instant at which it goes on."""


class SettableClock(Protocol):
    """A clock for `Store.open(clock=…)` that goes where it is told to."""

    def __call__(self) -> datetime:
        """The instant that it shows."""

    def set(self, now: datetime) -> None:
        """Show another one."""


class Clock:
    """A settable clock; until it is set it is the machine's."""

    def __init__(self) -> None:
        self._told: datetime | None = None

    def __call__(self) -> datetime:
        return self._told or datetime.now(UTC)

    def set(self, now: datetime) -> None:
        self._told = now


class Times:
    """Instants of the two weeks before `now`."""

    def __init__(self, clock: SettableClock, now: datetime) -> None:
        self._clock, self.now = clock, now.astimezone(UTC)

    def ago(self, days: float = 0, hours: float = 0, minutes: float = 0) -> datetime:
        return self.now - timedelta(days=days, hours=hours, minutes=minutes)

    def coming(self, days: float = 0, hours: float = 0, minutes: float = 0) -> datetime:
        return self.now + timedelta(days=days, hours=hours, minutes=minutes)

    def today(self, part: float) -> datetime:
        """An instant of the UTC day of `now`: 0 is midnight, or ten minutes ago if the day is younger than that, and 1 is now."""
        midnight = self.now.replace(hour=0, minute=0, second=0, microsecond=0)
        begins = min(midnight, self.now - timedelta(minutes=10))
        return begins + (self.now - begins) * part

    def later(self, seconds: float) -> datetime:
        """Some seconds pass, inside of a scene, but never into what is still to come."""
        reached = min(self._clock() + timedelta(seconds=seconds), self.now)
        self._clock.set(reached)
        return reached

    def play(self, scenes: Iterable[Scene]) -> None:
        """Let the scenes happen side by side, whatever comes first at its instant, and stop the clock at `now`."""
        waiting: list[tuple[datetime, int, Scene]] = []
        for number, scene in enumerate(scenes):
            _go_on(waiting, number, scene)
        while waiting:
            at, number, scene = heapq.heappop(waiting)
            self._clock.set(at)
            _go_on(waiting, number, scene)
        self._clock.set(self.now)


def _go_on(waiting: list[tuple[datetime, int, Scene]], number: int, scene: Scene) -> None:
    at = next(scene, None)
    if at is not None:
        heapq.heappush(waiting, (at, number, scene))


Ids = dict[str, Any]
"""The ids by which tests and readers find what was filled in."""
Subject = Callable[[Any, Times, Ids], Iterable[Scene]]
"""Gives the scenes of one subject for a store."""
