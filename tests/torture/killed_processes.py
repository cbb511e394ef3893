"""Processes that are killed at any moment.

They are forked from one server process that has imported the package already, so a round takes milliseconds. What they run
is a module-level function whose first argument is a connection: what it sends there, it acknowledges.
"""

import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import psycopg

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.torture.forkserver_preload"])
_GONE_SECONDS = 30
_MARK = "victim"
_LEFT = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
_IN_A_TRANSACTION = 4.0
"""As a power of ten: calls and returns of Python until a doomed process dies; a transaction has a few hundred."""


def ready() -> None:
    """Returns when the server runs that they are forked from, which takes seconds the first time."""
    Victim(_nothing).end(60)


def _nothing(_: Connection) -> None:
    pass


def marked(url: str) -> str:
    """The same database, whose server can tell a victim's connections from others."""
    return f"{url}&application_name={_MARK}" if url.startswith("postgresql") else url


def wait_until_gone(url: str) -> None:
    """A server may still be doing what a victim sent with its last breath: returns when none of its connections is left."""
    if not url.startswith("postgresql"):
        return
    deadline = time.monotonic() + _GONE_SECONDS
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(_LEFT, (_MARK,)).fetchone() != (0,):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the server keeps the connections of a dead client for {_GONE_SECONDS} s.")
            time.sleep(0.002)


class Victim:
    """One process, and what it has acknowledged."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self._receiving, sending = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(target=target, args=(sending, *arguments), daemon=True)
        self._process.start()
        sending.close()
        self.acknowledged: list[Any] = []
        self.killed = False

    def listen(self, seconds: float, *, until: int | None = None) -> int:
        """Take what it acknowledges for so long, or until it is so many -> how many it is now."""
        deadline = time.monotonic() + seconds
        while (until is None or len(self.acknowledged) < until) and self._receiving.poll(max(deadline - time.monotonic(), 0)):
            try:
                self.acknowledged.append(self._receiving.recv())
            except EOFError:
                break
        return len(self.acknowledged)

    def kill(self) -> list[Any]:
        """Kill it at once, with no chance to clean up -> everything that it had acknowledged."""
        self._process.kill()
        return self.end()

    def end(self, seconds: float = _GONE_SECONDS) -> list[Any]:
        """Wait for it -> everything that it had acknowledged; one that hangs is killed and raises TimeoutError."""
        deadline = time.monotonic() + seconds
        self.listen(seconds)
        self._process.join(max(deadline - time.monotonic(), 0.1))
        hangs = self._process.exitcode is None
        if hangs:
            self._process.kill()
            self._process.join()
        code = self._process.exitcode
        self._process.close()
        self._receiving.close()
        if hangs:
            raise TimeoutError(f"a process did not end in {seconds:.0f} s.")
        if code not in (0, -signal.SIGKILL):
            raise RuntimeError(f"a process ended with {code}.")
        self.killed = code != 0
        return self.acknowledged


def sudden(
    target: Callable[..., None], chance: random.Random, *arguments: Any, first: int = 1, seconds: float = 0.1
) -> list[Any]:
    """Start it, let it acknowledge a few writes, and kill it up to so many seconds later -> what it had acknowledged."""
    victim = Victim(target, *arguments)
    victim.listen(_GONE_SECONDS, until=chance.randint(0, first))
    time.sleep(chance.random() * seconds)
    return victim.kill()


def doomed(
    target: Callable[..., None], chance: random.Random, *arguments: Any, first: int = 0, events: float = _IN_A_TRANSACTION
) -> Victim:
    """One that has ended: killed between two calls of Python, so many after one of its first acknowledgements, if it got there.

    Moments that are over in microseconds, such as the one between a commit and what follows, are met as often as any other.
    """
    victim = Victim(_die, chance.randint(0, first), int(10 ** (chance.random() * events)), target, *arguments)
    victim.end()
    return victim


class _Doom:
    """Takes acknowledgements like a connection, and starts counting after so many."""

    def __init__(self, sending: Connection, after: int, events: int) -> None:
        self._sending, self._after, self._events = sending, after, events
        self._tick()

    def send(self, acknowledged: object) -> None:
        self._sending.send(acknowledged)
        self._after -= 1
        self._tick()

    def _tick(self) -> None:
        if self._after == 0:
            sys.setprofile(self._count)

    def _count(self, *_: object) -> None:
        self._events -= 1
        if self._events <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _die(sending: Connection, after: int, events: int, target: Callable[..., None], *arguments: Any) -> None:
    target(_Doom(sending, after, events), *arguments)
