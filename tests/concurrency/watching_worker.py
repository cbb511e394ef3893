"""What the processes of the tests of watching run: `python -m tests.concurrency.watching_worker COMMAND URL …`."""

import json
import random
import sys
from functools import partial

from persist import Store
from persist.store.transaction import Transaction

SHARED = 5


class GivenUpError(Exception):
    """A transaction that is not to commit."""


def write(store: Store, name: str, count: str) -> None:
    """Append so many events, a few in each transaction, to a stream of its own and to shared ones; some roll back."""
    chance, number = random.Random(name), 0
    while number < int(count):
        many = min(chance.randint(1, 9), int(count) - number)
        # in one order, or writers wait for each other until the server ends one of them, a second later each time
        streams = sorted(chance.choice([name, f"shared {chance.randrange(SHARED)}"]) for _ in range(many))

        fails = chance.random() < 0.1
        try:
            store.transact(partial(_append, name, number, streams, fails))
        except GivenUpError:
            continue
        number += many


def _append(name: str, first: int, streams: list[str], fails: bool, tx: Transaction) -> None:
    for number, stream in enumerate(streams, start=first):
        tx.events.append(stream, "written", {"writer": name, "number": number})
    if fails:
        raise GivenUpError


def watch(store: Store, stream: str, after: str) -> None:
    """Say of each event: position, seq, stream, data."""
    for event in store.watch(stream, after=int(after), timeout=120):  # a reader that misses an event ends by itself
        print(json.dumps([event.position, event.seq, event.stream_id, event.data]), flush=True)


COMMANDS = {"write": write, "watch": watch}

if __name__ == "__main__":
    _, command, url, *arguments = sys.argv
    with Store.open(url) as opened:
        COMMANDS[command](opened, *arguments)
