"""A process that writes for as long as a block lasts."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from persist import Store
from tests.architecture.sources import ROOT
from tests.maintenance.pair_writer import SESSIONS


def make_sessions(store: Store) -> None:
    """What the process writes to."""
    with store.begin() as tx:
        for session in SESSIONS:
            tx.chat.sessions.create(id=session, agent="build", model={})


@contextmanager
def writing(url: str) -> Iterator[dict[str, Any]]:
    """What the process says at its end is in the dict then."""
    command = [sys.executable, "-m", "tests.maintenance.pair_writer", url]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    said: dict[str, Any] = {}
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        yield said
        output, _ = process.communicate(timeout=60)
        said |= json.loads(output)
    finally:
        process.kill()
        process.communicate()
