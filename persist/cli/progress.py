"""How far a long recording is: a moving line on a terminal, a plain one every few seconds elsewhere."""

import os
import stat
import time
from types import TracebackType
from typing import Any, BinaryIO

from persist.cli.output import say

_PATIENCE = 0.5  # seconds; shorter recordings show nothing
_REDRAW = 0.1
_PLAIN_EVERY = 5.0
_CHARACTERS_PER_TOKEN = 4  # a rule of thumb: streams do not say how many tokens a piece of text is


class Progress:
    """Counts chunks, bytes and, by rule of thumb, tokens."""

    def __init__(self, stream: BinaryIO, *, terminal: bool, quiet: bool) -> None:
        self.chunks = self.bytes = self._characters = 0
        self._began = time.monotonic()
        self._quiet = quiet
        self._total = _size(stream)
        self._fancy = terminal and not quiet
        self._display: Any = None
        self._task: Any = None
        self._next = self._began + (_PATIENCE if self._fancy else _PLAIN_EVERY)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def line(self, size: int) -> None:
        """A line was read."""
        self.bytes += size

    def fed(self, chunk: dict[str, Any]) -> None:
        """A chunk is stored."""
        self.chunks += 1
        piece = chunk.get("delta", chunk.get("inputTextDelta"))
        if isinstance(piece, str):
            self._characters += len(piece)
        if not self._quiet and time.monotonic() >= self._next:
            self._show()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._display is not None:
            self._display.stop()

    def __str__(self) -> str:
        rate = self._characters / _CHARACTERS_PER_TOKEN / max(self.seconds, 0.001)
        return f"{self.chunks:,} chunks, {self.bytes / 1000:,.1f} KB, about {rate:,.0f} tokens/s"

    def _show(self) -> None:
        if self._fancy and self._display is None:
            self._start()
        if self._display is None:
            say(str(self), err=True)
            self._next = time.monotonic() + _PLAIN_EVERY
            return
        self._display.update(self._task, completed=self.bytes, description=str(self))
        self._next = time.monotonic() + _REDRAW

    def _start(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Display
        except ImportError:  # an extra: without it the plain line has to do
            self._fancy = False
            return
        bar = (BarColumn(), TaskProgressColumn()) if self._total else ()
        text = TextColumn("{task.description}", markup=False)
        self._display = Display(SpinnerColumn(), text, *bar, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
        self._task = self._display.add_task(str(self), total=self._total)
        self._display.start()


def _size(stream: BinaryIO) -> int | None:
    """How long the input is, if it is a file."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no descriptor: a stream in memory
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
