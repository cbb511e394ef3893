"""Surroundings that are hostile without being broken: locks held for long, places that are read-only, clocks that jump."""

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection

from persist import AsyncStore, Store
from persist.errors import NotPermitted, PersistError, StoreBusy
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.torture.disks import LimitedDisk, small_disk
from tests.torture.killed_processes import Victim
from tests.torture.scenario import Ground, Scenario, Tally, intact

_BLOCKED = 0.05
"""Seconds that an event loop may stand still, whatever others do to the database."""
_LEASE = timedelta(seconds=60)
_IMPATIENT = Settings(busy_timeout_ms=50)


def hold_lock(acknowledge: Connection, path: str, how: str, seconds: float) -> None:
    """Be the writer of a file, or its only user, for so long."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute(f"BEGIN {how}")
    acknowledge.send("held")
    time.sleep(seconds)
    connection.execute("ROLLBACK")
    connection.close()


class Ticking:
    """How long nothing ran, at worst: on an event loop, and on a thread beside it, which the machine delays as much."""

    def __init__(self) -> None:
        self.loop = self.thread = 0.0
        self._done = threading.Event()

    async def tick(self) -> None:
        """Until it is cancelled."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            self.loop = max(self.loop, time.monotonic() - before)

    def beside(self) -> None:
        """Until `done`."""
        while not self._done.is_set():
            before = time.monotonic()
            time.sleep(0.005)
            self.thread = max(self.thread, time.monotonic() - before)

    def done(self) -> None:
        """The thread may end."""
        self._done.set()


async def _beside_a_lock(url: str, session: str, tally: Tally) -> Ticking:
    """A transaction and a recorder while another process holds the lock; the loop goes on."""
    ticking = Ticking()
    thread = threading.Thread(target=ticking.beside)
    thread.start()
    async with AsyncStore.open(url, settings=_IMPATIENT) as store:
        ticks = asyncio.ensure_future(ticking.tick())

        async def begin() -> None:
            async with store.begin() as tx:
                await tx.chat.sessions.get(session)

        async def record(number: int) -> None:
            async with store.record(session, takeover=True) as recorder:
                await recorder.feed({"type": "start", "messageId": f"m{number}"})

        results = await asyncio.gather(begin(), record(0), return_exceptions=True)
        ticks.cancel()
        with suppress(asyncio.CancelledError):
            await ticks
    ticking.done()
    thread.join()
    for result in results:
        if isinstance(result, BaseException):
            tally.errors[type(result).__name__] += 1
            if not isinstance(result, StoreBusy):
                tally.problems.append(f"beside a lock: {result!r}")
    return ticking


def held_locks(ground: Ground, tally: Tally) -> None:
    """StoreBusy after the promised attempts, no event loop that stands still meanwhile, and work goes on afterwards."""
    url = ground.new_url()
    path = url.removeprefix("sqlite:///")
    with Store.open(url) as store, store.begin() as tx:
        session = tx.chat.sessions.create(agent="build", model={}).id
    for _ in ground.rounds():
        holder = Victim(hold_lock, path, ground.random.choice(("IMMEDIATE", "EXCLUSIVE")), 3.0)
        holder.listen(10, until=1)
        with Store.open(url, settings=_IMPATIENT, migrate=False) as store:
            started = time.monotonic()
            try:
                with store.begin():
                    tally.problems.append("a transaction began while another process held the lock.")
            except StoreBusy:
                tally.errors["StoreBusy"] += 1
            if time.monotonic() - started < 1.5:
                tally.problems.append("StoreBusy came before five attempts with pauses of 0.1, 0.2, 0.4 and 0.8 s.")
            with store.read() as tx:
                tx.chat.sessions.get(session)
        ticking = asyncio.run(_beside_a_lock(url, session, tally))
        if ticking.loop > _BLOCKED + ticking.thread:
            tally.problems.append(f"a loop stood still for {ticking.loop:.3f} s, a thread beside it for {ticking.thread:.3f} s.")
        holder.end()
        with Store.open(url) as store, store.begin() as tx:
            tx.chat.messages.append(session, role="user", parts=[])
        tally.acknowledged += 1
        tally.rounds += 1
    intact(url, tally)


# ---------------------------------------------------------------- read-only places


def use_as_nobody(acknowledge: Connection, folder: str, url: str) -> None:
    """Root may do anything: become nobody first. What was refused, and by what."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    acknowledge.send(_refusals(folder, url))


def _refusals(folder: str, url: str) -> list[str]:
    refused = []
    doors: dict[str, Callable[[], None]] = {
        "open": lambda: Store.open(url).close(),
        "new": lambda: Store.open(f"sqlite:///{folder}/new.db").close(),
        "read": lambda: Store.open(url, read_only=True).close(),
    }
    for name, door in doors.items():
        try:
            door()
        except PersistError as error:
            refused.append(f"{name} {type(error).__name__}")
        except Exception as error:
            refused.append(f"{name} LEAKED {error!r}")
    return refused


def read_only_places(ground: Ground, tally: Tally) -> None:
    """A folder and a file that nobody may write, by their modes and by the file system: NotPermitted, and nothing changes."""
    for number in ground.rounds():
        with small_disk(ground.folder / f"ro{number}") as disk:
            url = f"sqlite:///{disk.path / 'state.db'}"
            with Store.open(url) as store, store.begin() as tx:
                session = tx.chat.sessions.create(agent="build", model={}).id
            before = (disk.path / "state.db").read_bytes()
            for folder, file in ((0o555, 0o444), (0o555, 0o666), (0o000, 0o666)):
                for above in (disk.path, *disk.path.parents[:1]):
                    above.chmod(0o755)
                (disk.path / "state.db").chmod(file)
                disk.path.chmod(folder)
                victim = Victim(use_as_nobody, str(disk.path), url)
                ((*refused,),) = victim.end()
                _note(refused, f"folder {folder:o}, file {file:o}", tally)
            disk.path.chmod(0o700)
            if not isinstance(disk, LimitedDisk):
                disk.read_only(True)
                _note(_refusals(str(disk.path), url), "a read-only file system", tally)
                disk.read_only(False)
            if (disk.path / "state.db").read_bytes() != before:
                tally.problems.append("a file that nobody may write was changed.")
            with Store.open(url) as store, store.begin() as tx:
                tx.chat.messages.append(session, role="user", parts=[])
            tally.acknowledged += 1
        tally.rounds += 1


def _note(refused: list[str], where: str, tally: Tally) -> None:
    for one in refused:
        tally.errors[one.split()[1]] += 1
        if one.split()[1] not in (NotPermitted.__name__, "NotFound"):
            tally.problems.append(f"{where}: {one}")
    if not any(one.startswith("new") for one in refused):
        tally.problems.append(f"{where}: a new file could be made.")


# ---------------------------------------------------------------- clocks that jump


def jumping_clocks(ground: Ground, tally: Tally) -> None:
    """Backwards and forwards by up to years: ids ascend, order is that of writing, and a lease has one holder."""
    url = ground.new_url()
    for number in ground.rounds():
        clock = FrozenClock()
        with Store.open(url, clock=clock) as store:
            ids: list[str] = []
            texts: list[str] = []
            tokens: list[int] = []
            with store.begin() as tx:
                session = tx.chat.sessions.create(agent="build", model={}).id
                tx.workflows.runs.create(f"triage {number}", trigger_id="issue/1", current_phase="plan", status="queued")
            for step in range(20):
                clock.set(clock() + timedelta(seconds=ground.random.choice((-1e8, -3600, -1, 0, 1, 59, 61, 3600, 1e8))))
                with suppress(PersistError), store.begin() as tx:
                    ids.append(tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": str(step)}]).id)
                    texts.append(str(step))
                with suppress(PersistError), store.begin() as tx:
                    lease = tx.workflows.runs.claim(f"worker {step}", lease=_LEASE, workflow_name=f"triage {number}")
                    if lease is not None:
                        tokens.append(lease.token)
                with store.begin() as tx:
                    tx.telemetry.status.record(f"s{step}", instance_id=f"i{number}")
                    tx.telemetry.usage.sample(at=clock(), token_input=step, instance_id=f"i{number}")
                    last = tx.telemetry.status.current(instance_id=f"i{number}")
                    if last is None or last.new_status != f"s{step}":
                        tally.problems.append(f"round {number}, step {step}: the last status is not what was written last.")
            with store.read() as tx:
                found = [message["parts"][0]["text"] for message in tx.chat.messages.list(session)]
            tally.acknowledged += len(texts)
            tally.lost += len(set(texts) - set(found))
            if ids != sorted(ids) or found != texts:
                tally.problems.append(f"round {number}: messages are not in the order in which they were written.")
            if tokens != sorted(set(tokens)):
                tally.problems.append(f"round {number}: the tokens of leases were {tokens}.")
        tally.rounds += 1
    intact(url, tally)


SCENARIOS = [
    Scenario("locks held for long", ("sqlite",), held_locks),
    Scenario("places that are read-only", ("sqlite",), read_only_places, 0.5),
    Scenario("clocks that jump", ("sqlite", "postgres"), jumping_clocks, 0.5),
]
