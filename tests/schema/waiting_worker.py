"""`python -m tests.schema.waiting_worker upgrade|open URL`: says that it is ready, and begins when it is told to."""

import sys
from collections.abc import Callable

import alembic.command  # what an upgrade imports takes longer than the upgrade

import persist
import persist.schema.migrate


def open_store(url: str) -> None:
    """Open the database as whoever comes first, and write to it."""
    # several in turn on a busy machine take longer than the five seconds that a store waits by default
    with persist.Store.open(url, settings=persist.Settings(busy_timeout_ms=60_000)) as store, store.begin() as tx:
        tx.chat.sessions.create(agent="build", model={})


COMMANDS: dict[str, Callable[[str], object]] = {"upgrade": persist.upgrade, "open": open_store}
LOADED = (alembic.command, persist.schema.migrate)

if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    COMMANDS[sys.argv[1]](sys.argv[2])
