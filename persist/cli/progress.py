"""How far a long command is, and what it says when Ctrl-C or SIGTERM ends it.

There is one bar for the whole work on a terminal, and a plain line every few seconds elsewhere.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from persist.cli.interrupts import Interrupted
from persist.cli.output import inline, say
from persist.interruption import exit_code, hold, leave, say_when_left

T = TypeVar("T")

_PATIENCE = 0.5  # seconds; shorter work shows nothing
_REDRAW = 0.1
_PLAIN_EVERY = 5.0


class Display:
    """A line that moves on a terminal, and with `rich` has a bar where the end is known; elsewhere plain lines now and then."""

    def __init__(self, *, quiet: bool, terminal: bool | None = None) -> None:
        self.began = time.monotonic()
        self._quiet = quiet
        self._fancy = (sys.stderr.isatty() if terminal is None else terminal) and not quiet
        self._next = self.began + (_PATIENCE if self._fancy else _PLAIN_EVERY)
        self._bar: Any = None
        self._task: Any = None

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.began

    @property
    def due(self) -> bool:
        """Whether something is to be shown now."""
        return not self._quiet and time.monotonic() >= self._next

    def show(self, text: str, done: int = 0, total: int | None = None) -> None:
        """Show the text, with how much of the whole is done where that is known."""
        if self._fancy and self._bar is None:
            self._start(text)
        if self._bar is None:
            say(text, err=True)
            self._next = time.monotonic() + _PLAIN_EVERY
            return
        self._bar.update(self._task, completed=done, total=total, description=text)
        self._next = time.monotonic() + _REDRAW

    def stop(self) -> None:
        """Leave nothing on the terminal."""
        if self._bar is not None:
            self._bar.stop()

    def _start(self, text: str) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar
        except ImportError:  # an extra: without it the plain line has to do
            self._fancy = False
            return
        shown = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        self._bar = Bar(*shown, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(text, total=None)
        self._bar.start()


class Progress:
    """`progress(what, done, total)` tells how far the work is: what is being done, its steps, and how many the whole has.

    While it is entered, warnings of the logger `persist` are lines on standard error, and Ctrl-C and SIGTERM end the command with
    a line that says what is left behind. `doing`: a word such as Copying. `unit`: what the steps are; without it steps are not
    counted in lines. `left`: a sentence about what an interrupt leaves, or a function that returns it.
    """

    def __init__(
        self, doing: str, *, quiet: bool, left: str | Callable[[], str], unit: str = "", terminal: bool | None = None
    ) -> None:
        self._doing, self._unit, self._left = doing, unit, left
        self._display = Display(quiet=quiet, terminal=terminal)
        self._told: tuple[str, int, int | None] = ("", 0, None)
        self._first: int | None = None
        self._apart = False
        self._warnings = _Warnings(logging.WARNING)

    @property
    def done(self) -> int:
        """The steps that were told last."""
        return self._told[1]

    def __call__(self, what: str, done: int, total: int | None = None) -> None:
        if self._first is None:
            self._first = done  # what an earlier call did is not this one's speed
        self._told = (what, done, total)
        if not self._apart and self._display.due:
            self._show()

    def count(self, done: int, total: int | None = None) -> None:
        """Tell how far work is that is not divided into parts."""
        self("", done, total)

    def of_rows(self, table: str, done: int, total: int) -> None:
        """Tell how far a copy is, of which each row is two steps: it is written, and read back."""
        self(table, done // 2, total // 2)

    def finish(self) -> None:
        """The work is done: from now on one signal changes nothing, for what is left is closing and telling."""
        hold()

    def run(self, work: Callable[[], T]) -> T:
        """The result of the work, which is done on another thread: Ctrl-C is heard during a long statement, too.

        Only for work that may be killed: the process ends at once then, and the database undoes what is not committed.
        """
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="persist-command", daemon=True)
        self._apart = True
        try:
            thread.start()
            while thread.is_alive():
                thread.join(_REDRAW)
                if self._display.due:
                    self._show()
        except KeyboardInterrupt:
            if not results:
                self._display.stop()
                say_when_left(self._line())
                leave(exit_code() - 128)
        if errors:
            raise errors[0]
        return results[0]

    def __enter__(self) -> "Progress":
        if isinstance(self._left, str):
            say_when_left(self._line())  # of a command that Ctrl-C kills at once
        logging.getLogger("persist").addHandler(self._warnings)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        logging.getLogger("persist").removeHandler(self._warnings)
        self._display.stop()
        say_when_left()
        if error is None:
            self.finish()
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(self._left if isinstance(self._left, str) else self._left()) from error

    def _line(self) -> str:
        return f"Interrupted. {self._left if isinstance(self._left, str) else self._left()}".rstrip()

    def _show(self) -> None:
        what, done, total = self._told
        self._display.show(self._text(what, done, total), done, total)

    def _text(self, what: str, done: int, total: int | None) -> str:
        named = f" {inline(what)}" if what else ""
        if not self._unit or self._first is None:
            return f"{self._doing}{named}" if total is None else f"{self._doing}{named}, {done + 1} of {total}"
        of = f"{done:,}" if total is None else f"{done:,} of {total:,}"
        rate = (done - self._first) / max(self._display.seconds, 0.001)
        return f"{self._doing}{named}: {of} {self._unit}, {rate:,.0f}/s"


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(inline(f"{record.levelname.capitalize()}: {record.getMessage()}"), err=True)
