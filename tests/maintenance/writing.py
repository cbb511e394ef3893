"""A process that writes for as long as a block lasts."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from persist import Store
from tests.maintenance.pair_writer import SESSIONS
from tests.subprocesses import Worker


def make_sessions(store: Store) -> None:
    """What the process writes to."""
    with store.begin() as tx:
        for session in SESSIONS:
            tx.chat.sessions.create(id=session, agent="build", model={})


@contextmanager
def writing(url: str) -> Iterator[dict[str, Any]]:
    """What the process says at its end is in the dict then."""
    process = Worker("tests.maintenance.pair_writer", url, stdin=True)
    said: dict[str, Any] = {}
    try:
        assert process.stdout.readline() == "writing\n"
        yield said
        output, _ = process.communicate(timeout=60)
        said |= json.loads(output)
    finally:
        process.close()
