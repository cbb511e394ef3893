"""Ctrl-C and SIGTERM while something comes in: they end the wait for more, and never cut in half what is done with it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from persist.interruption import SIGNALS


class Interrupted(KeyboardInterrupt):
    """The user, or the system, wants us to stop. `left`: what the command leaves behind, in a sentence."""

    def __init__(self, left: str = "") -> None:
        super().__init__(left)
        self.left = left


class Interrupts:
    """While entered, a signal is remembered; it raises Interrupted where we wait for input, or when it comes again."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._waiting = False
        self._before: dict[int, Any] = {}

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as shells have it."""
        return 128 + (self.signal or signal.SIGINT)

    def check(self) -> None:
        """Raise Interrupted if a signal has come; called where stopping is harmless."""
        if self.signal is not None:
            raise Interrupted

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a read that may take for ever."""
        self._waiting = True
        try:
            self.check()
            yield
        finally:
            self._waiting = False

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # only there signals can be handled
            handler: Callable[[int, FrameType | None], None] = self._arrived
            self._before = {number: signal.signal(number, handler) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        again, self.signal = self.signal is not None, number
        if self._waiting or again:
            self._waiting = False
            raise Interrupted
