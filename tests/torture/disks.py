"""Small disks that a scenario may fill: mounted in memory, or a limit on the size of files; and writes that are refused."""

import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import make_url

from persist import Store
from persist.errors import StoreFull, Unavailable
from persist.workflows import Worker
from persist.workflows.schemas import WorkflowRun
from tests.torture.scenario import Ground, Scenario, Tally

_BLOCK = b"x" * 4096


class Disk:
    """A folder with little room, which `fill` takes away and `free` gives back."""

    exact = True
    """Whether a full one says that it is full. What is over a limit of size is an input or output error to SQLite."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Not a byte more."""
        with open(self.path / "ballast", "ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(_BLOCK)

    def free(self) -> None:
        """As it was."""
        (self.path / "ballast").unlink(missing_ok=True)

    def read_only(self, on: bool) -> None:
        """Nothing can be written, or it can again."""
        _mount("-o", f"remount,{'ro' if on else 'rw'}", str(self.path))


class LimitedDisk(Disk):
    """No file of this process grows beyond a few bytes while it is full."""

    exact = False

    def fill(self) -> None:
        sys.dont_write_bytecode = True  # Python would leave a module's bytecode cut off, for all processes after this one
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    def free(self) -> None:
        maximum = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (maximum, maximum))


@contextmanager
def small_disk(path: Path, size: str = "12m") -> Iterator[Disk]:
    """A new folder with so much room; it is gone at the end."""
    path.mkdir()
    mounted = os.geteuid() == 0 and _mount("-t", "tmpfs", "-o", f"size={size},mode=0700", "persist-torture", str(path))
    found = Disk(path) if mounted else LimitedDisk(path)
    try:
        yield found
    finally:
        found.free()
        if mounted:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
        shutil.rmtree(path, ignore_errors=True)


def _mount(*arguments: str) -> bool:
    return shutil.which("mount") is not None and subprocess.run(["mount", *arguments], capture_output=True).returncode == 0


# ----------------------------------------------------------------
# Databases that refuse writes for a moment, over and over: workers and stores go on, do nothing twice, and are not late.


_LATE, _STUCK = 1.0, 30.0
_POLL, _DUE = timedelta(seconds=0.05), timedelta(seconds=0.1)
_PIECE = "x" * 3000


def refused_writes(ground: Ground, tally: Tally) -> None:
    """One run of each round ends in the outage, another is due in it: the worker notices its end within a second."""
    if ground.database == "postgres":
        url = ground.new_url()
        with psycopg.connect(url, autocommit=True) as connection:
            _rounds(ground, tally, url, partial(_read_only, connection, make_url(url).database))
    else:
        with small_disk(ground.folder / "disk", "24m") as disk:
            _rounds(ground, tally, f"sqlite:///{(disk.path / 'state.db').as_posix()}", partial(_full, disk))


@contextmanager
def _read_only(connection: psycopg.Connection[Any], database: str | None) -> Iterator[None]:
    """Sessions that are made now refuse writes for ever; those that were made before are ended."""
    connection.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on'.encode())
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    try:
        yield
    finally:
        connection.execute(f'ALTER DATABASE "{database}" RESET default_transaction_read_only'.encode())


@contextmanager
def _full(disk: Disk) -> Iterator[None]:
    disk.fill()
    try:
        yield
    finally:
        disk.free()


def _rounds(ground: Ground, tally: Tally, url: str, outage: Callable[[], Any]) -> None:
    done: Counter[str] = Counter()
    gone_on = threading.Event()

    def handle(run: WorkflowRun) -> None:
        done[run.id] += 1
        gone_on.wait(_STUCK)  # until the outage has begun, so that its end is stored in it

    with Store.open(url) as store:
        worker = Worker(store, {"job": handle}, lease=timedelta(minutes=5), concurrency=2, poll=_POLL)
        thread = threading.Thread(target=partial(worker.run, signals=False), daemon=True)
        thread.start()
        try:
            for _ in ground.rounds():
                gone_on.clear()
                queue = partial(store.workflows.runs.create, "job", trigger_id="t", current_phase="p", status="queued")
                run = queue()
                _until(partial(_has, done, run.id))
                runs = [run.id, queue(not_before=datetime.now(UTC) + _DUE).id]
                with outage():
                    gone_on.set()
                    _refused(store, tally)
                    time.sleep(ground.random.random() * 0.2)
                over = time.monotonic()
                if not _until(partial(_succeeded, store, runs)):
                    tally.lost += 1
                    break
                if time.monotonic() - over > _LATE:
                    tally.problems.append(f"{time.monotonic() - over:.2f} s after an outage its result was not stored")
                tally.acknowledged += len(runs)
                tally.rounds += 1
        finally:
            worker.stop()
            thread.join(_STUCK)
        if thread.is_alive():
            tally.problems.append("a worker does not end")
        tally.problems += [f"{id} was done {count} times" for id, count in done.items() if count > 1]


def _refused(store: Store, tally: Tally) -> None:
    try:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="build", model={})
            tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": _PIECE}])
    except (StoreFull, Unavailable) as error:
        tally.errors[type(error).__name__] += 1


def _has(done: Counter[str], id: str) -> bool:
    return done[id] > 0


def _succeeded(store: Store, ids: Sequence[str]) -> bool:
    return all(store.workflows.runs.get(id).status == "succeeded" for id in ids)


def _until(met: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _STUCK
    while not met():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


SCENARIOS = [Scenario("writes refused for a moment", ("sqlite", "postgres"), refused_writes)]
