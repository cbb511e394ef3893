"""The command line: `persist`. `nouns.py` holds what commands share; a command's module is imported when the command runs."""

from persist.cli.root import main

__all__ = ["main"]
