"""Empty runs, queued one by one and then worked off by processes: as each library's documentation has it, with its defaults.

Every contender has a database on the same server, and processes of its own, which stand still while it is another one's turn. A
run costs the time from the beginning of the work until the last run has ended, divided by the runs. For DBOS it begins with the
poll that finds runs: the second that its workers wait between two polls is left out. One of its workers takes all runs that it
finds, so of 16 only one works. A worker of persist and of procrastinate takes one run at a time; one of persist that is told to
take many is compared with DBOS, too.
"""

import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import psycopg
from psycopg import sql
from sqlalchemy.engine import make_url

import persist
from benchmarks.goals import reached
from benchmarks.measure import Row, in_turn, middle, us
from benchmarks.place import Place
from benchmarks.queue_workers import DBOS, ENDED, FILLS, PERSIST, PROCRASTINATE, WIDE, work

RUNS, ROUNDS = 500, 4
WORKERS = (1, 16)
_STOPS = hasattr(signal, "SIGSTOP")


@dataclass
class Contender:
    """One library at work on its database."""

    name: str
    url: str
    processes: list[tuple[BaseProcess, Connection]]

    def queue(self, count: int) -> float:
        """Seconds for each of so many runs to be queued."""
        began = time.perf_counter()
        self.fill(count)
        return (time.perf_counter() - began) / count

    def __post_init__(self) -> None:
        self.fill = FILLS[self.name](self.url)
        self.ended = 0

    def work(self, workers: int, count: int) -> float:
        """Seconds for each of the runs that are queued to be done by so many workers."""
        taking_part = self.processes[:workers]
        for process, _ in taking_part:
            _signal(process, go=True)
        for _, pipe in taking_part:
            pipe.send("go")
        began = min([pipe.recv() for _, pipe in taking_part])
        for process, pipe in taking_part:
            assert pipe.recv() == "ready"
            _signal(process, go=False)
        with psycopg.connect(self.url) as raw:
            ((ended, at),) = raw.execute(ENDED[self.name]).fetchall()
        if ended - self.ended != count:
            raise AssertionError(f"{self.name}: {ended - self.ended} of {count} runs have ended")
        self.ended = ended
        return (float(at) - began) / count


def rows(place: Place) -> Iterator[Row]:
    """On Postgres."""
    if place.postgres is None:
        return
    runs, rounds = (RUNS // 5, 2) if place.quick else (RUNS, ROUNDS)
    with ExitStack() as stack:
        contenders = {name: _made(stack, place.postgres, name) for name in FILLS}
        for workers in WORKERS:
            if workers > 1:  # the server has no room for the connections of more
                contenders = {name: contenders[name] for name in (PERSIST, WIDE, PROCRASTINATE, DBOS)}
            for contender in contenders.values():
                _grow(stack, contender, workers)
            taken: dict[str, list[float]] = {name: [] for name in contenders}
            queued: dict[str, list[float]] = {name: [] for name in contenders}
            for turn, name in enumerate(in_turn(list(contenders), 1 + rounds)):
                gc.collect()
                queueing = contenders[name].queue(runs)
                working = contenders[name].work(workers, runs)
                if turn >= len(contenders):  # the first round does not count
                    queued[name].append(queueing)
                    taken[name].append(working)
            yield from _compared(workers, taken, queued)


def _compared(workers: int, taken: dict[str, list[float]], queued: dict[str, list[float]]) -> Iterator[Row]:
    each = {name: middle(seconds) for name, seconds in taken.items()}
    for peer in (PROCRASTINATE, DBOS):
        key = f"queue-{peer.lower()}-{workers}"
        yield reached(key, each[PERSIST] / each[peer], f"{us(each[PERSIST])} vs {us(each[peer])}")
    who = "1 worker" if workers == 1 else f"{workers} workers"
    detail = f"{us(each[WIDE])} vs {us(each[DBOS])}"
    yield Row(f"Postgres: {WIDE}, {who}, vs DBOS", each[WIDE] / each[DBOS], float("inf"), detail)
    for name in sorted(each, key=lambda name: each[name]):
        detail = f"{us(each[name])} a run, {1 / each[name]:,.0f} runs/s; queued in {us(middle(queued[name]))}"
        detail += f"; from {us(min(taken[name]))} to {us(max(taken[name]))}"
        yield Row(f"Postgres: {name}, {who}", each[name] / each[PERSIST], float("inf"), detail)


def _made(stack: ExitStack, url: str, name: str) -> Contender:
    """A contender with an empty database of its own, removed in the end."""
    database = "bench_queue_" + "".join(filter(str.isalnum, name.lower()))
    identifier = sql.Identifier(database)
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(drop)
        admin.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
    own = make_url(url).set(database=database).render_as_string(hide_password=False)
    if name.startswith(PERSIST):
        persist.upgrade(own)

    def remove() -> None:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(drop)

    stack.callback(remove)
    return Contender(name, own, [])


def _grow(stack: ExitStack, contender: Contender, workers: int) -> None:
    start = multiprocessing.get_context("forkserver" if _STOPS else "spawn")
    start.set_forkserver_preload(["benchmarks.queue_workers", "dbos", "procrastinate", "persist.workers.worker", "psycopg"])
    for number in range(len(contender.processes), workers):
        mine, others = start.Pipe()
        process = start.Process(target=work, args=(others, contender.name, contender.url, number), daemon=True)
        process.start()
        others.close()
        stack.callback(process.join)
        stack.callback(process.kill)
        assert mine.recv() == "ready"
        contender.processes.append((process, mine))
    for process, _ in contender.processes:
        _signal(process, go=False)


def _signal(process: BaseProcess, *, go: bool) -> None:
    if _STOPS:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGCONT if go else signal.SIGSTOP)
