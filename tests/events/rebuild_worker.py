"""A rebuild in a process of its own: `python -m tests.events.rebuild_worker rebuild TARGET SOURCE` stops half-way."""

import sys
import time
from typing import Any

from persist import Store
from persist.events import rebuild
from persist.events.repository import Replay


def main(command: str, target: str, source: str) -> None:
    """Says "there" on standard output once half of the events are applied, and writes no more."""
    with Store.open(source, read_only=True) as reading, Store.open(target) as writing:
        left = len(reading.events.read("*")) // 2
        apply = Replay.apply

        def applied(self: Replay, event: Any) -> None:
            nonlocal left
            apply(self, event)
            left -= 1
            if left == 0:
                print("there", flush=True)
                time.sleep(600)

        Replay.apply = applied  # type: ignore[method-assign]  # this process is here to be killed at that place
        rebuild(reading, writing)


if __name__ == "__main__":
    main(*sys.argv[1:])
