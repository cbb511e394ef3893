"""What a stalled stream owes, and when, in monotonic seconds."""

import time


class Deadlines:
    """Of the buffer, of the fold and of the sign of life; None: nothing is owed."""

    __slots__ = ("beat", "buffer", "fold")

    def __init__(self) -> None:
        self.buffer: float | None = None
        self.fold: float | None = None
        self.beat: float | None = None

    @property
    def next(self) -> float | None:
        """The earliest."""
        due = self.fold
        for other in (self.buffer, self.beat):
            if other is not None and (due is None or other < due):
                due = other
        return due

    def postpone(self) -> None:
        """They are tried again in a second."""
        later = time.monotonic() + 1.0
        self.buffer = later if self.buffer is not None else None
        self.fold = later if self.fold is not None else None
        self.beat = later if self.beat is not None else None

    def clear(self) -> None:
        """Nothing is owed any more."""
        self.buffer = self.fold = self.beat = None
