"""A process that consumes the log: `python -m tests.concurrency.consumer_worker URL NAME SECONDS`, the length of its leases.

It says which positions it was handed out, a batch a line, and acknowledges them when it is told to, until none are left.
"""

import sys
import time
from datetime import timedelta

from persist import Store


def main(url: str, name: str, seconds: str) -> None:
    with Store.open(url) as store:
        consumers = store.events.consumers
        while True:
            batch = consumers.next(name, limit=3, lease=timedelta(seconds=float(seconds)))
            if batch:
                print(*(event.position for event in batch.events), flush=True)
                sys.stdin.readline()
                consumers.ack(name, batch.position, token=batch.token)
            elif consumers.get(name).behind == 0:
                break
            else:  # another one has them
                time.sleep(0.05)
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
