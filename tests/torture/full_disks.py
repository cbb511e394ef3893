"""A disk that is full at any moment: said as StoreFull, nothing half-written, and work goes on when there is room again."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from persist import AsyncStore, Store
from persist.errors import MigrationFailed, PersistError, StoreFull, Unavailable
from persist.maintenance import backup, copy, doctor, export, import_, vacuum
from persist.schema.adopt import adopt
from persist.sessionlog import SessionLogWriter, read_session_log
from persist.settings import Settings
from persist.single_owner_files import create_run_file
from tests.sessionlog.scenes import text
from tests.torture.disks import Disk, small_disk
from tests.torture.recording import answer
from tests.torture.scenario import Ground, Scenario, Tally, intact

KEPT = Path(__file__).parents[1] / "schema" / "databases"
_LONG = "long " * 4000


class Bench:
    """A store on the disk, one elsewhere that has rows, and what was acknowledged."""

    def __init__(self, disk: Disk, source: Store, exported: Path) -> None:
        self.disk, self.source, self.exported = disk, source, exported
        self.url = f"sqlite:///{disk.path / 'state.db'}"
        self.store = Store.open(self.url, settings=Settings(fold_bytes=300))
        with self.store.begin() as tx:
            self.session = tx.chat.sessions.create(agent="build", model={}).id

    def messages(self) -> int:
        """How many the session has."""
        with self.store.read() as tx:
            return len(tx.chat.messages.list(self.session))

    def files(self) -> set[str]:
        """What lies on the disk, but for what SQLite keeps beside a database."""
        found = {str(path.relative_to(self.disk.path)) for path in self.disk.path.rglob("*") if path.is_file()}
        return {name for name in found if not name.endswith(("-wal", "-shm", "-journal", "ballast"))}


def _begin(bench: Bench) -> None:
    with bench.store.begin() as tx:
        for _ in range(20):
            tx.chat.messages.append(bench.session, role="user", parts=[{"type": "text", "text": _LONG}])


def _record(bench: Bench) -> None:
    """One message more, or none; what `feed` returned for stays."""
    with bench.store.record(bench.session) as recorder:
        for chunk in answer(bench.messages()):
            recorder.feed(chunk)


def _async(bench: Bench) -> None:
    async def all_of_them() -> None:
        async with AsyncStore.open(bench.url) as store:
            streams = [asyncio.ensure_future(_stream(store)) for _ in range(6)]
            failed = [one for one in await asyncio.gather(*streams, return_exceptions=True) if isinstance(one, BaseException)]
            if failed:
                raise failed[0]

    asyncio.run(all_of_them())


async def _stream(store: AsyncStore) -> None:
    async with store.begin() as tx:
        session = (await tx.chat.sessions.create(agent="build", model={})).id
    acknowledged = ""
    with suppress(Unavailable):
        try:
            async with store.record(session) as recorder:
                for chunk in ({"type": "start", "messageId": f"m{session}"}, {"type": "text-start", "id": "t"}):
                    await recorder.feed(chunk)
                for number in range(60):
                    await recorder.feed({"type": "text-delta", "id": "t", "delta": f"{number} {_LONG[:400]}"})
                    acknowledged += f"{number} {_LONG[:400]}"
        finally:
            async with store.read() as tx:
                (message,) = await tx.chat.messages.list(session) or [{"parts": [{"text": ""}]}]
            said = "".join(str(part.get("text", "")) for part in message["parts"])
            assert said.startswith(acknowledged), "an acknowledged chunk is gone"


def _attachment(bench: Bench) -> None:
    with create_run_file(bench.disk.path, program_source="session 1") as run, run.begin() as tx:
        assert run.run_id is not None
        tx.programs.bindings.bind(run.run_id, "large", _LONG * 20)


def _log(bench: Bench) -> None:
    with SessionLogWriter(bench.disk.path, "-app", strict=True, fsync="batch") as log:
        log.feed_many([text(_LONG * 3, session="s1")])
        assert log.path is not None
        assert read_session_log(log.path)


def _upgrade(bench: Bench) -> None:
    Store.open(f"sqlite:///{bench.disk.path / 'kept.db'}").close()


def _adopt(bench: Bench) -> None:
    adopt(f"sqlite:///{bench.disk.path / 'foreign.db'}")


WRITES: dict[str, Callable[[Bench], object]] = {
    "begin": _begin,
    "record": _record,
    "async": _async,
    "events": lambda bench: bench.store.switch_events(True),
    "backup": lambda bench: backup(bench.source, bench.disk.path / "copy.db"),
    "export": lambda bench: export(bench.source, bench.disk.path / "out.jsonl"),
    "import": lambda bench: import_(bench.store, bench.exported),
    "copy": lambda bench: _copied(bench),
    "vacuum": lambda bench: vacuum(bench.store),
    "attachment": _attachment,
    "session log": _log,
    "upgrade": _upgrade,
    "adopt": _adopt,
}
_MAY_FIT = {"vacuum", "record"}
_LEAVES = {"copy": {"target.db"}, "session log": {"projects/-app/s1.jsonl"}}
"""An empty database, a log without a line."""


def _copied(bench: Bench) -> None:
    with Store.open(f"sqlite:///{bench.disk.path / 'target.db'}") as target:
        copy(bench.source, target)


def full_disks(ground: Ground, tally: Tally) -> None:
    """Each way of writing in turn, in an order of chance."""
    exported = ground.folder / "out.jsonl"
    with Store.open(ground.new_url()) as source:
        with source.begin() as tx:
            session = tx.chat.sessions.create(agent="build", model={}).id
            for _ in range(40):
                tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": _LONG}])
        export(source, exported)
        order: list[str] = []
        for number in ground.rounds():
            order = order or ground.random.sample(sorted(WRITES), len(WRITES))
            with small_disk(ground.folder / f"disk{number}") as disk:
                _round(order.pop(), Bench(disk, source, exported), ground, tally)
            tally.rounds += 1


def _round(name: str, bench: Bench, ground: Ground, tally: Tally) -> None:
    disk, write = bench.disk, WRITES[name]
    if name == "upgrade":
        shutil.copy(ground.random.choice(sorted(KEPT.glob("*.db"))), disk.path / "kept.db")
    if name == "adopt":
        shutil.copy(KEPT / "0006.db" if (KEPT / "0006.db").exists() else KEPT / "0005.db", disk.path / "foreign.db")
        _make_foreign(disk.path / "foreign.db")
    with bench.store:
        before, messages = bench.files(), bench.messages()
        disk.fill()
        try:
            write(bench)
            if name not in _MAY_FIT and disk.exact and name not in ("upgrade", "adopt"):
                tally.problems.append(f"{name}: it took a full disk for one with room.")
        except PersistError as error:
            tally.errors[type(error).__name__] += 1
            promised = isinstance(error, StoreFull) or (isinstance(error, MigrationFailed) and "no space left" in str(error))
            if not promised and (disk.exact or not isinstance(error, Unavailable | MigrationFailed)):
                tally.problems.append(f"{name} on a full disk: {error!r}")
        if bench.messages() < messages:
            tally.lost += 1
        if (more := bench.files() - before - _LEAVES.get(name, set())) and name not in _MAY_FIT:
            tally.problems.append(f"{name} on a full disk left {sorted(more)}.")
        disk.free()
        doctor(bench.store)
        write(bench)
        tally.acknowledged += 1
    intact(bench.url, tally)


def _make_foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE persist_alembic_version")
    connection.close()


SCENARIOS = [Scenario("disks that are full", ("sqlite",), full_disks)]
