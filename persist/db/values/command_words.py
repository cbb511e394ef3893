"""Quoting for the shell commands that messages advise to run."""

import shlex
import sys


def command_word(text: str) -> str:
    """The text quoted as one argument of a command line, for this system's shell."""
    return f'"{text}"' if sys.platform == "win32" else shlex.quote(text)
