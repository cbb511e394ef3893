"""A newcomer's machine: an empty home, a folder, and an environment in which this source is what pip would have installed."""

import os
import subprocess
import venv
from pathlib import Path

import sqlalchemy

from tests.markdown import ROOT


def newcomer_folder(place: Path) -> Path:
    """An empty folder, beside an empty home, with an environment .venv that has persist and the command."""
    folder = place / "folder"
    (place / "home").mkdir()
    folder.mkdir()
    venv.create(folder / ".venv", symlinks=True)
    (packages,) = (folder / ".venv" / "lib").glob("python*/site-packages")
    dependencies = Path(sqlalchemy.__file__).parents[1]
    (packages / "persist.pth").write_text(f"{ROOT}\n{dependencies}\n", encoding="utf-8")
    command = folder / ".venv" / "bin" / "persist"
    # a shell finds the interpreter where the folder's name has a blank, too
    start = "import sys; sys.argv[0] = 'persist'; from persist.cli import main; main()"
    command.write_text(f'#!/bin/sh\nexec "$(dirname "$0")/python" -c "{start}" "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return folder


def run(script: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """The script in bash, in the folder, with nothing of this process's environment; it notes what it tells in ../told.txt."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder.parent / "home"), "LANG": "C.UTF-8"}
    environment |= {"TMPDIR": os.environ["TMPDIR"]} if "TMPDIR" in os.environ else {}
    environment["TOLD"] = str(told_in(folder))
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=300
    )


def told_in(folder: Path) -> Path:
    """Where a script notes how its commands end: outside of the folder that the reader sees."""
    return folder.parent / "told.txt"
