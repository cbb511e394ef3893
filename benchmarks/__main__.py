"""`make bench`: the table of ratios, as Markdown, for this machine."""

import platform
import sqlite3
import sys
import tempfile
from pathlib import Path

import sqlalchemy

from benchmarks import chat


def main() -> int:
    """Print the table; the goals are for reading, not for failing a build on a slow machine."""
    python = platform.python_version()
    print(f"Python {python}, SQLAlchemy {sqlalchemy.__version__}, SQLite {sqlite3.sqlite_version}, {platform.machine()}\n")
    print("| what | measured | at most | |\n|---|---|---|---|")
    for bench in (chat.chunks, chat.reading, chat.opening, chat.faces):
        with tempfile.TemporaryDirectory() as folder:
            for row in bench(Path(folder)):
                goal = "-" if row.goal == float("inf") else f"{row.goal:g}{row.unit}"
                mark = "" if goal == "-" else " met" if row.met else " missed"
                print(f"| {row.name} | {row.ratio:.2f}{row.unit}{mark} | {goal} | {row.detail} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
