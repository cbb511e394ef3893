"""How far a copy is: a bar on a terminal, a plain line every few seconds elsewhere."""

import sys
import time
from types import TracebackType
from typing import Any

from persist.cli.output import say

_PATIENCE = 0.5  # seconds; shorter work shows nothing
_REDRAW = 0.1
_PLAIN_EVERY = 5.0


class TableProgress:
    """`progress(table, done, total)`."""

    def __init__(self, *, quiet: bool, terminal: bool | None = None) -> None:
        self._quiet = quiet
        self._fancy = (sys.stderr.isatty() if terminal is None else terminal) and not quiet
        self._next = time.monotonic() + (_PATIENCE if self._fancy else _PLAIN_EVERY)
        self._display: Any = None
        self._task: Any = None

    def __call__(self, table: str, done: int, total: int) -> None:
        if self._quiet or time.monotonic() < self._next:
            return
        if self._fancy and self._display is None:
            self._start()
        if self._display is None:
            say(f"{table}: {100 * done // max(1, total)} %", err=True)
            self._next = time.monotonic() + _PLAIN_EVERY
            return
        self._display.update(self._task, completed=done, total=total, description=table)
        self._next = time.monotonic() + _REDRAW

    def __enter__(self) -> "TableProgress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._display is not None:
            self._display.stop()

    def _start(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Display
        except ImportError:  # an extra: without it the plain line has to do
            self._fancy = False
            return
        shown = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        self._display = Display(*shown, console=Console(stderr=True), transient=True)
        self._task = self._display.add_task("", total=None)
        self._display.start()
