"""A resumable copy in a process of its own: `python -m tests.maintenance.resumable_worker SRC DST ROWS [STOP]`.

It says each step, and stops for ever after STOP of them.
"""

import sys
import time

from persist import Store
from persist.maintenance import copy_resumably


def main(source: str, target: str, rows: str, stop: str = "0") -> None:
    """Says "done" at its end."""
    steps = 0

    def progress(table: str, done: int, total: int) -> None:
        nonlocal steps
        steps += 1
        print(table, done, total, flush=True)
        if steps == int(stop):
            time.sleep(600)

    with Store.open(source, read_only=True) as reading:
        copy_resumably(reading, target, rows=int(rows), progress=progress)
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
