"""The command line: `persist`. One file per noun; a command's module is imported when the command runs."""

from persist.cli.root import main

__all__ = ["main"]
