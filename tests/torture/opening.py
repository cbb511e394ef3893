"""Files that are made, upgraded or adopted, and processes that are killed while they do it."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

from persist import Store
from persist.db.statements.schema_version import REVISIONS
from persist.errors import UnmanagedDatabase
from persist.maintenance import adopt
from persist.schema.migrate import check, upgrade
from tests.adopt.shapes import SYSTEMS
from tests.schema.test_upgrades import FOLDER, assert_reads_as_written
from tests.torture.killed_processes import Victim, doomed, marked, wait_until_gone
from tests.torture.scenario import Ground, Scenario, Tally, intact, whole

_EVENTS = 6.3


def perform(acknowledge: Connection, operation: Callable[[str], None], url: str) -> None:
    """Acknowledged when it is over."""
    operation(url)
    acknowledge.send(True)


def opens(url: str) -> None:
    """Which makes a file, or upgrades it."""
    Store.open(url).close()


def adopts(url: str) -> None:
    adopt(url)


def opened_files(ground: Ground, tally: Tally) -> None:
    """A file is what it was, or what it is to be: new ones, those of every release, and those of other programs."""
    for number in ground.rounds():
        kind = ground.random.choice([_make, _upgrade, _adopt, _together])
        folder = ground.folder / f"files {number}"
        folder.mkdir()
        kind(ground, folder, tally)
        tally.rounds += 1
        shutil.rmtree(folder)


def _make(ground: Ground, folder: Path, tally: Tally) -> None:
    url = f"sqlite:///{(folder / 'new.db').as_posix()}"
    _kill(ground, opens, url, tally)
    with Store.open(url) as store, store.begin() as tx:
        tx.messaging.sessions.get_or_create(platform="p", channel_id="c", user_id="u")
    intact(url, tally)


def _upgrade(ground: Ground, folder: Path, tally: Tally) -> None:
    revision = ground.random.choice(REVISIONS[:-1])
    url = f"sqlite:///{(folder / 'old.db').as_posix()}"
    shutil.copyfile(FOLDER / f"{revision}.db", folder / "old.db")
    _kill(ground, opens, url, tally)
    if _version(folder / "old.db") not in (revision, REVISIONS[-1]):
        tally.problems.append(f"{url} of {revision} is at {_version(folder / 'old.db')}")
    with Store.open(url) as store:
        assert_reads_as_written(store, json.loads((FOLDER / f"{revision}.json").read_text(encoding="utf-8")))
    intact(url, tally)


def _together(ground: Ground, folder: Path, tally: Tally) -> None:
    """Several at once, some of which are killed: the others make or upgrade it, and none of them fails."""
    path = folder / "shared.db"
    url = f"sqlite:///{path.as_posix()}"
    if ground.random.random() < 0.5:
        shutil.copyfile(FOLDER / f"{REVISIONS[0]}.db", path)
    victims = [Victim(perform, opens, url) for _ in range(4)]
    for victim in victims[:2]:
        victim.listen(ground.random.random() * 0.03)
        victim.kill()
    told = [len(victim.end()) for victim in victims[2:]]
    tally.acknowledged += sum(told)
    if told != [1, 1]:
        tally.problems.append(f"{url}: {told} of those that were left alone opened it")
    intact(url, tally)


def _adopt(ground: Ground, folder: Path, tally: Tally) -> None:
    path = folder / "theirs.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(f"PRAGMA journal_mode = {ground.random.choice(['delete', 'wal'])};")
        raw.executescript(ground.random.choice(list(SYSTEMS.values())))
    url, before = f"sqlite:///{path.as_posix()}", _dump(path)
    done = _kill(ground, adopts, url, tally)
    _backups_are(before, folder, tally)
    try:
        check(url)
    except UnmanagedDatabase:
        if done or _dump(path) != before:
            tally.problems.append(f"{url}: adopted by half, or not at all")
            tally.lost += done
    adopts(url)
    _backups_are(before, folder, tally)
    if left := list(folder.glob("*.partial")):
        tally.problems.append(f"{left[0]} is left")
    intact(url, tally)


def made_schemas(ground: Ground, tally: Tally) -> None:
    """The tables of a server are made or not made, and the next upgrade makes them."""
    url = ground.new_url()
    for number in ground.rounds():
        schema = f"s{number}"
        done = doomed(make_schema, ground.random, marked(url), schema, events=_EVENTS).acknowledged
        wait_until_gone(url)
        tally.rounds += 1
        tally.acknowledged += len(done)
        if done:
            check(url, schema=schema)
        tally.repaired += not done
        upgrade(url, schema=schema)
        with Store.open(url, schema=schema) as store, store.begin() as tx:
            tx.messaging.sessions.get_or_create(platform="p", channel_id="c", user_id="u")


def make_schema(acknowledge: Connection, url: str, schema: str) -> None:
    upgrade(url, schema=schema)
    acknowledge.send(True)


def _kill(ground: Ground, operation: Callable[[str], None], url: str, tally: Tally) -> bool:
    done = doomed(perform, ground.random, operation, url, events=_EVENTS).acknowledged
    tally.acknowledged += len(done)
    tally.repaired += not done
    if Path(url.removeprefix("sqlite:///")).exists():
        whole(url, tally)
    return bool(done)


def _dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as raw:
        return list(raw.iterdump())


def _version(path: Path) -> str:
    with closing(sqlite3.connect(path)) as raw:
        return str(raw.execute("SELECT version_num FROM persist_alembic_version").fetchone()[0])


def _backups_are(before: list[str], folder: Path, tally: Tally) -> None:
    for kept in folder.glob("*.before-adopt-*"):
        if kept.suffix != ".partial" and _dump(kept) != before:
            tally.problems.append(f"{kept} is not what the file was")


SCENARIOS = [
    Scenario("files made, upgraded, adopted and killed", ("sqlite",), opened_files),
    Scenario("tables made and killed", ("postgres",), made_schemas),
]
