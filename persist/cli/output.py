"""What commands print: stored text made harmless for a terminal, columns, JSON for scripts, progress, and the end by Ctrl-C."""

import json
import logging
import os
import re
import signal
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType, TracebackType
from typing import Any, TypeVar

import click
from pydantic import BaseModel

from persist.db.values.json import JsonText
from persist.interruption import SIGNALS, exit_code, hold, leave, say_when_left

# Stored text comes from models, tools and web pages: it may move the cursor, retitle the window, or lie by its direction.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_RAW_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_UNITS = ("B", "KB", "MB", "GB", "TB")


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def printable(text: str) -> str:
    """Text that a terminal only shows; line breaks and tabs stay."""
    return _HARMFUL.sub(_escape, text.replace("\r\n", "\n"))


def inline(text: str) -> str:
    """Printable text on one line."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def instant(value: datetime) -> str:
    """An instant, to the second, in UTC."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def model_name(model: Any) -> str:
    """`provider/id` where the model says so."""
    if isinstance(model, dict):
        provider, id = model.get("provider_id"), model.get("model_id")
        if isinstance(provider, str) and isinstance(id, str):
            return inline(f"{provider}/{id}")
    return shortened(model, 60) if model else "-"


def tokens(count: int) -> str:
    """How many tokens; a dash for none, which says that nobody told."""
    return f"{count:,}" if count else "-"


def cost(dollars: float | None) -> str:
    """US dollars; a dash where nobody told, which is stored as nothing or as zero."""
    return f"${dollars:,.4f}" if dollars else "-"


def size(count: int | None) -> str:
    """1,234,567 bytes as 1.2 MB; `-` where nobody knows."""
    if count is None:
        return "-"
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{count} B" if not unit else f"{value:,.1f} {_UNITS[unit]}"


def cut(text: str, maximum: int) -> str:
    """Text on one line, cut when it is long."""
    shown = inline(text)
    return shown if len(shown) <= maximum else shown[: maximum - 1] + "…"


def shortened(value: Any, maximum: int = 300) -> str:
    """A JSON value on one line, cut when it is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # escaping makes text longer, never shorter, so what is cut away need not be escaped first
    cut = inline(text[: maximum + 1])
    return cut if len(text) <= maximum else f"{inline(text[:maximum])}… ({len(text):,} characters)"


class Paint:
    """Styles text, on a terminal that has colours and a user who has not set NO_COLOR."""

    def __init__(self, on: bool | None = None) -> None:
        wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.on = (wanted and sys.stdout.isatty()) if on is None else on

    def __call__(self, text: str, **style: Any) -> str:
        return click.style(text, **style) if self.on else text


def say(text: str, *, err: bool = False) -> None:
    """Print a line, whatever characters the terminal can write."""
    encoding = (sys.stderr if err else sys.stdout).encoding or "utf-8"
    # what is styled was styled on purpose: click must not look again whether this is a terminal
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=err, color=True)


def json_text(value: Any) -> str:
    """A JSON value on one line; values of the package may be anywhere in it. What is JSON text already stays as it is."""
    return str(value) if isinstance(value, JsonText) else json.dumps(value, ensure_ascii=False, default=_dumped)


def say_json(value: Any, *, err: bool = False) -> None:
    """Print a JSON value on one line, as `json_text` has it."""
    say_json_text(json_text(value), err=err)


def _dumped(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else list(value)


def say_json_text(text: str, *, err: bool = False) -> None:
    """Print JSON text; what harms a terminal can only be inside of strings, where JSON has its own escape for it."""
    click.echo(_RAW_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode(), err=err)


def columns(rows: Iterable[Sequence[str]]) -> Iterable[str]:
    """Rows with their cells one below the other; the last cell of a row is not padded."""
    rows = list(rows)
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = [cell + " " * (width - cells(cell)) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(padded).rstrip()


def cells(text: str) -> int:
    """How many columns a terminal needs for it."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def fitted(text: str, width: int) -> str:
    """Printable text on one line, in at most so many columns of a terminal: of longer text the middle is left out."""
    if cells(text) <= width:
        return text
    head, tail = _first(text, (width - 1) - (width - 1) // 2), _first(text[::-1], (width - 1) // 2)[::-1]
    return f"{head}…{tail}"


def _first(text: str, width: int) -> str:
    """The longest beginning that takes so many columns."""
    taken = 0
    for place, character in enumerate(text):
        taken += cells(character)
        if taken > width:
            return text[:place]
    return text


# Ctrl-C and SIGTERM while something comes in: they end the wait for more, and never cut in half what is done with it.


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
        return time.monotonic() - self.began

    @property
    def due(self) -> bool:
        return not self._quiet and time.monotonic() >= self._next

    def show(self, text: str, done: int = 0, total: int | None = None) -> None:
        if self._fancy and self._bar is None:
            self._start(text)
        if self._bar is None:
            say(text, err=True)
            self._next = time.monotonic() + _PLAIN_EVERY
            return
        self._bar.update(self._task, completed=done, total=total, description=text)
        self._next = time.monotonic() + _REDRAW

    def stop(self) -> None:
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
        self("", done, total)

    def of_rows(self, table: str, done: int, total: int) -> None:
        """Tell how far a copy is, of which each row is two steps: it is written, and read back."""
        self(table, done // 2, total // 2)

    def finish(self) -> None:
        """The work is done: from now on one signal changes nothing, for what is left is closing and telling."""
        hold()

    def run(self, work: Callable[[], T]) -> T:
        """The result of the work, on another thread, so that Ctrl-C is heard: it kills the process at once."""
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
