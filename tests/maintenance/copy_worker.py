"""A copy in a process of its own: `python -m tests.maintenance.copy_worker SRC DST TABLE` stops for ever once TABLE is begun."""

import sys
import time

from persist import Store
from persist.maintenance import copy


def main(source: str, target: str, stop: str) -> None:
    """Says "there" on standard output when it got that far."""

    def progress(table: str, done: int, total: int) -> None:
        if table == stop:
            print("there", flush=True)
            time.sleep(600)

    with Store.open(source, read_only=True) as reading, Store.open(target) as writing:
        copy(reading, writing, progress=progress)


if __name__ == "__main__":
    main(*sys.argv[1:])
