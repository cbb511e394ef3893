"""The sqlite3 command line: the system's, or the one inside the wheel of apsw, which the test extra installs."""

import os
import shutil
import subprocess
from pathlib import Path

from apsw import sqlite_extra


def find_sqlite3() -> Path | None:
    """Where it is, if it is anywhere."""
    if found := shutil.which("sqlite3"):
        return Path(found)
    return Path(sqlite_extra.path("sqlite3_shell")) if sqlite_extra.has("sqlite3_shell") else None


class Sqlite3:
    """Runs SQL on files, and shell commands that call it by its name."""

    def __init__(self, binary: Path, folder: Path) -> None:
        (folder / "sqlite3").symlink_to(binary)
        self.path = folder / "sqlite3"
        self.env = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}

    def run(self, file: Path, sql: str, *options: str) -> subprocess.CompletedProcess[str]:
        """One call, with the SQL as its argument, as published."""
        return self.start([str(self.path), *options, str(file), sql])

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """A command line as an agent types it."""
        return self.start(["sh", "-c", command])

    def start(self, line: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(line, env=self.env, capture_output=True, encoding="utf-8", timeout=60, check=False)
