"""When a recorder has to act even if no more chunks come; monotonic seconds."""

import time


class Deadlines:
    """When to flush the buffer, to fold deltas and to write a heartbeat; None if not scheduled."""

    __slots__ = ("buffer", "fold", "heartbeat")

    def __init__(self) -> None:
        self.buffer: float | None = None
        self.fold: float | None = None
        self.heartbeat: float | None = None

    @property
    def next(self) -> float | None:
        """The earliest deadline; None if none is scheduled."""
        due = self.fold
        for other in (self.buffer, self.heartbeat):
            if other is not None and (due is None or other < due):
                due = other
        return due

    def postpone(self) -> None:
        """Move every scheduled deadline to one second from now, to retry what failed."""
        later = time.monotonic() + 1.0
        self.buffer = later if self.buffer is not None else None
        self.fold = later if self.fold is not None else None
        self.heartbeat = later if self.heartbeat is not None else None

    def clear(self) -> None:
        """Unschedule everything."""
        self.buffer = self.fold = self.heartbeat = None
