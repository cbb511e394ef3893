"""Worker processes of a test."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

Spawn = Callable[..., subprocess.Popen[str]]


@contextmanager
def spawning(module: str, url: str) -> Iterator[Spawn]:
    """`spawn(command, *arguments)` starts the module on the database; none outlives the block."""
    with ExitStack() as stack:

        def start(command: str, *arguments: Any) -> subprocess.Popen[str]:
            line = [sys.executable, "-m", module, command, url, *map(str, arguments)]
            process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            stack.callback(_end, process)
            return process

        yield start


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait(30)
    if process.stdout is not None:
        process.stdout.close()
