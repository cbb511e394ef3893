"""Words of commands that messages say to run."""

import shlex
import sys


def command_word(text: str) -> str:
    """The text as one word of a command line, as the shells of this system take it."""
    return f'"{text}"' if sys.platform == "win32" else shlex.quote(text)
