"""Ctrl-C in the `persist` command: one line and an exit code, from its first instant on."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""

_line = [b"Interrupted.\n"]


def leave(number: int = signal.SIGINT, frame: FrameType | None = None) -> NoReturn:
    """End the process at once, as a kill would: what is a transaction is undone by its database, whatever Python is just doing.

    An exception instead could be lost, since some of what Python calls back has nobody to raise it to.
    """
    restored = b"\x1b[?25h\r\x1b[K" if sys.stderr is not None and sys.stderr.isatty() else b""
    os.write(2, restored + _line[0])  # past Python's buffers, to which the interrupted code may be writing
    os._exit(INTERRUPTED)


def say_when_left(line: str = "Interrupted.") -> None:
    """The line that `leave` writes from now on; it says what the command leaves behind."""
    _line[0] = line.encode(errors="backslashreplace") + b"\n"


def raise_again() -> None:
    """From now on Ctrl-C is a KeyboardInterrupt: for commands that have something to put away first."""
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
