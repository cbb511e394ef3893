"""A process with stores and recorders open forks: its children work on their own beside it, and outlive what it closes."""

import asyncio
import os
import random
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection

from persist import AsyncStore, Store
from persist.errors import StoreForked
from tests.torture.killed_processes import Victim, wait_until_gone
from tests.torture.scenario import Ground, Scenario, Tally, intact

_CHILDREN = 5
_MESSAGES = 15
_HANGS_AFTER = 60


def parent(acknowledge: Connection, url: str, seed: int) -> None:
    """Acknowledges (session, message) of its own and of its children, or (None, what should not be)."""
    warnings.simplefilter("ignore", DeprecationWarning)  # the threads of an AsyncStore rest while it forks
    chance, children = random.Random(seed), []
    with Store.open(url) as store, Store.open(url) as other, asyncio.Runner() as runner:
        shared = AsyncStore(other)
        recorder, stream = store.record(f"{seed}"), shared.record(f"{seed} async")
        for session in (f"{seed}", f"{seed} async"):
            _session(store, session)
        recorder.feed_many([{"type": "start", "messageId": f"{seed}"}, {"type": "text-start", "id": "t"}])
        runner.run(stream.feed_many([{"type": "start", "messageId": f"{seed} async"}, {"type": "text-start", "id": "t"}]))
        for number in range(_CHILDREN):
            name, pid = f"{seed} child {number}", os.fork()
            if pid == 0:
                _guarded(acknowledge, lambda name=name: _child(acknowledge, url, store, name))  # type: ignore[misc]  # a bound default
                os._exit(0)
            children.append(pid)
            for _ in range(chance.randrange(8)):
                recorder.feed({"type": "text-delta", "id": "t", "delta": "x"})
                runner.run(stream.feed({"type": "text-delta", "id": "t", "delta": "x"}))
        recorder.feed({"type": "finish"})
        runner.run(stream.feed({"type": "finish"}))
        for session in (f"{seed}", f"{seed} async"):
            acknowledge.send((session, session))
        runner.run(shared.close())
    # Everything is closed here, and the children write on: nobody may think to be the last.
    for number in range(3):
        with Store.open(url) as again:
            _session(again, f"{seed} again {number}")
    for pid in children:
        _wait_for(acknowledge, pid)


def _child(acknowledge: Connection, url: str, inherited: Store, name: str) -> None:
    for use in (inherited.begin, inherited.read):
        try:
            with use():
                acknowledge.send((None, f"{name} used its parent's store"))
        except StoreForked:
            pass
    inherited.close()
    with Store.open(url) as store:
        _session(store, name)
        for number in range(_MESSAGES):
            id = f"{name} {number}"
            with store.begin() as tx:
                tx.chat.messages.append(name, role="user", parts=[{"type": "text", "text": id}], id=id)
            acknowledge.send((name, id))
            time.sleep(0.002)


def _session(store: Store, name: str) -> None:
    store.transact(lambda tx: tx.chat.sessions.create(id=name, agent="build", model={}))


def _guarded(acknowledge: Connection, work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException as error:
        acknowledge.send((None, f"{type(error).__name__}: {error}"))


def _wait_for(acknowledge: Connection, pid: int) -> None:
    deadline = time.monotonic() + _HANGS_AFTER
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            acknowledge.send((None, f"a child hung for {_HANGS_AFTER} s"))
            return
        time.sleep(0.002)


def forks(ground: Ground, tally: Tally) -> None:
    """No child hangs, touches what is its parent's, or loses a write when its parent closes; and the parent goes on."""
    for _ in ground.rounds():
        url = ground.new_url()
        told = Victim(parent, url, ground.random.randrange(10**6)).end(2 * _HANGS_AFTER)
        wait_until_gone(url)
        tally.rounds += 1
        tally.problems += [f"{url}: {text}" for session, text in told if session is None]
        written = [one for one in told if one[0] is not None]
        tally.acknowledged += len(written)
        if len(written) != _CHILDREN * _MESSAGES + 2:
            tally.problems.append(f"{url}: {len(written)} messages were acknowledged")
        with Store.open(url) as store, store.read() as tx:
            there = {message["id"] for session in {one[0] for one in written} for message in tx.chat.messages.list(session)}
        tally.lost += len({id for _, id in written} - there)
        intact(url, tally)


SCENARIOS = [Scenario("forks with everything open", ("sqlite", "postgres"), forks)]
