"""Ctrl-C and SIGTERM in the `persist` command: one line and an exit code, from its first instant on."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

# The last one is Ctrl-Break, which only Windows has.
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]
_line = [b"Interrupted before anything was done.\n"]
_arrived: list[int] = []
"""The signals that came, the last one at the end."""


def listen() -> None:
    """From now on each of the signals ends the process at once."""
    for number in SIGNALS:
        signal.signal(number, leave)


def leave(number: int = signal.SIGINT, frame: FrameType | None = None) -> NoReturn:
    """End the process at once, as a kill would: what is a transaction is undone by its database, whatever Python is just doing.

    An exception instead could be lost, since some of what Python calls back has nobody to raise it to.
    """
    restored = b"\x1b[?25h\r\x1b[K" if sys.stderr is not None and sys.stderr.isatty() else b""
    os.write(2, restored + _line[0])  # past Python's buffers, to which the interrupted code may be writing
    os._exit(128 + number)


def say_when_left(line: str = "Interrupted.") -> None:
    """The line that `leave` writes from now on; it says what the command leaves behind."""
    _line[0] = line.encode(errors="backslashreplace") + b"\n"


def exit_code() -> int:
    """128 and the number of the signal that came last, as shells have it; that of Ctrl-C if none came."""
    return 128 + (_arrived[-1] if _arrived else signal.SIGINT)


def came() -> bool:
    """Whether a signal was raised as a KeyboardInterrupt, or is held back."""
    return bool(_arrived)


def raise_again() -> None:
    """From now on a signal is a KeyboardInterrupt: for commands that have something to put away first."""
    _handle(_interrupt)


def hold() -> None:
    """From now on one signal changes nothing, and the next one ends the process at once: the work is done, and is being told."""
    say_when_left("Interrupted; the work was done.")
    _handle(_held)


def _handle(handler: "signal._HANDLER") -> None:
    """Only where the signals are ours: a program that calls the command in its own process keeps its handlers."""
    for number in SIGNALS:
        if signal.getsignal(number) in (leave, _interrupt, _held):
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    _arrived.append(number)
    raise KeyboardInterrupt


def _held(number: int, frame: FrameType | None) -> None:
    if _arrived:
        leave(number)
    _arrived.append(number)
