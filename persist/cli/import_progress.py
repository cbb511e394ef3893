"""How far an import or a backup is, and what it warns of: a bar on a terminal, a plain line every few seconds elsewhere."""

import logging
import sys
import time
from types import TracebackType
from typing import Any

from persist.cli.output import inline, say

_PATIENCE = 0.5  # seconds; shorter ones show nothing
_REDRAW = 0.1
_PLAIN_EVERY = 5.0


class ImportProgress:
    """`progress(done, total)`, in `unit`s; while entered, warnings of the logger `persist` are lines on standard error."""

    def __init__(self, *, quiet: bool, terminal: bool | None = None, unit: str = "runs") -> None:
        self._unit = unit
        self._quiet = quiet
        self._fancy = (sys.stderr.isatty() if terminal is None else terminal) and not quiet
        self._next = time.monotonic() + (_PATIENCE if self._fancy else _PLAIN_EVERY)
        self._display: Any = None
        self._task: Any = None
        self._warnings = _Warnings(logging.WARNING)

    def __call__(self, done: int, total: int) -> None:
        if self._quiet or time.monotonic() < self._next:
            return
        if self._fancy and self._display is None:
            self._start(total)
        if self._display is None:
            say(f"{done:,} of {total:,} {self._unit}", err=True)
            self._next = time.monotonic() + _PLAIN_EVERY
            return
        self._display.update(self._task, completed=done)
        self._next = time.monotonic() + _REDRAW

    def __enter__(self) -> "ImportProgress":
        logging.getLogger("persist").addHandler(self._warnings)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        logging.getLogger("persist").removeHandler(self._warnings)
        if self._display is not None:
            self._display.stop()

    def _start(self, total: int) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Display
        except ImportError:  # an extra: without it the plain line has to do
            self._fancy = False
            return
        shown = (TextColumn(self._unit), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._display = Display(*shown, console=Console(stderr=True), transient=True)
        self._task = self._display.add_task("", total=total)
        self._display.start()


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(inline(f"{record.levelname.capitalize()}: {record.getMessage()}"), err=True)
