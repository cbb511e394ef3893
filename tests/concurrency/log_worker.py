"""Processes that write the log of events: `python -m tests.concurrency.log_worker COMMAND URL …`.

`write URL SEED ROUNDS`   transactions of random length, some of them rolled back; it says how many events it kept
`chat URL SESSION…`       changes of all kinds to sessions and conversations, until a line comes
`on URL STREAMS`          switches the log on, and dies when it has written that many snapshots
`trim URL STREAMS`        trims every stream, and dies when it has trimmed that many
`last URL`                commits an event and dies before it can tell anyone
"""

import os
import random
import signal
import sys
import threading
import time
from functools import partial
from typing import Any
from unittest import mock

from persist import Store
from persist.cli import main as command_line
from persist.errors import Conflict, NotFound
from persist.events import repository, snapshots, upkeep

STREAMS = ("a", "b", "c", "d")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class GaveUpError(Exception):
    """Rolls a transaction back."""


def write(url: str, seed: str, rounds: str) -> None:
    chance, kept = random.Random(int(seed)), 0
    with Store.open(url) as store:
        print("ready", flush=True)
        for _ in range(int(rounds)):
            streams = sorted(chance.sample(STREAMS, chance.randint(1, 3)))
            gives_up, pause = chance.random() < 0.2, chance.uniform(0, 0.01)

            def note(tx: Any, streams: list[str] = streams, pause: float = pause, gives_up: bool = gives_up) -> None:
                for stream in streams:
                    tx.events.append(stream, "noted", seed)
                    time.sleep(pause)
                if gives_up:
                    raise GaveUpError

            try:
                store.transact(note, attempts=20)
                kept += len(streams)
            except GaveUpError:
                pass
    print(kept, flush=True)


def chat(url: str, *sessions: str) -> None:
    told = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        told.set()

    threading.Thread(target=listen, daemon=True).start()
    chance, number = random.Random(os.getpid()), 0
    with Store.open(url) as store:
        print("ready", flush=True)
        while not told.is_set():
            number += 1
            try:
                store.transact(partial(change, chance=chance, sessions=sessions, number=number), attempts=20)
            except (NotFound, Conflict):  # another process has deleted it
                continue
    print(number, flush=True)


def change(tx: Any, chance: random.Random, sessions: tuple[str, ...], number: int) -> None:
    session, kind = chance.choice(sessions), chance.randrange(6)
    if kind < 2:
        tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": str(number)}])
    elif kind == 2:
        tx.chat.sessions.update_metadata(session, {"number": number})
    elif kind == 3:
        found = tx.chat.messages.list(session)
        if found:
            tx.chat.messages.delete(chance.choice(found)["id"])
    elif kind == 4:
        own = f"{os.getpid()}-{number}"
        tx.conversations.sessions.create(id=own, status="running")
        tx.conversations.branches.create(own, id=own)
        tx.conversations.messages.record(own, {"id": own, "created_at": 1.5, "role": "user", "content": "c"})
        tx.conversations.branches.fork(own)
    else:
        tx.chat.sessions.create(agent="late", model={})


def on(url: str, streams: str) -> None:
    left, write_one = int(streams), snapshots.write_locked_snapshot

    def counted(*arguments: Any) -> None:
        nonlocal left
        if not left:
            die()
        left -= 1
        write_one(*arguments)

    with mock.patch("persist.events.first_snapshots.write_locked_snapshot", counted), Store.open(url, events=True):
        print("finished", flush=True)


def trim(url: str, streams: str) -> None:
    left, delete = int(streams), upkeep.trim_each

    def counted(*arguments: Any, **options: Any) -> int:
        nonlocal left
        if not left:
            die()
        left -= 1
        return delete(*arguments, **options)

    with mock.patch.object(repository, "trim_each", counted):
        command_line(["events", "trim", "--keep", "0", "--url", url])


def last(url: str) -> None:
    store = Store.open(url)
    store.runtime.log.ended = die  # type: ignore[union-attr,method-assign]  # it dies where it would tell
    with store.begin() as tx:
        tx.events.append("audit", "noted", "the last")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
