"""Files that are damaged, removed or replaced: errors of ours or right values, never a traceback, a hang or a crash."""

import io
import sqlite3
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

from persist import Store
from persist.errors import PersistError
from persist.maintenance import backup, checkpoint, doctor, export, maintain, stats, vacuum
from persist.testing import FrozenClock
from tests.schema.filling import fill, transcript
from tests.torture.scenario import Ground, Scenario, Tally, intact

_BESIDE = ("-wal", "-shm")
_ROOT = Path(__file__).resolve().parents[2]
_ODD = (None, 0, -1, 2**62, 1.5, float("inf"), b"", b"\xff\xfe", "", "x", "null", "[]", "{}", "[[0,1]]", "1e999", "2026-13-99")


def _flip(data: bytearray, chance: Random) -> None:
    for _ in range(chance.choice((1, 3, 30))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _letters(data: bytearray, chance: Random) -> None:
    """Where text is, since most of a file is empty."""
    for _ in range(chance.choice((1, 2, 10))):
        place = chance.randrange(len(data))
        while not 32 <= data[place] < 127:
            place = chance.randrange(len(data))
        data[place] = chance.choice((data[place] ^ 1 << chance.randrange(8), chance.randrange(256), 0x22, 0x7B, 0x30, 0))


def _cut(data: bytearray, chance: Random) -> None:
    del data[chance.randrange(len(data)) :]


def _noise(data: bytearray, chance: Random) -> None:
    start, size = chance.randrange(len(data)), chance.choice((1, 8, 100, 4096))
    data[start : start + size] = chance.choice((bytes, chance.randbytes))(len(data[start : start + size]))


def _swap(data: bytearray, chance: Random) -> None:
    one, other = (chance.randrange(len(data) // 4096) * 4096 for _ in range(2))
    first, second = bytes(data[one : one + 4096]), bytes(data[other : other + 4096])
    data[one : one + 4096], data[other : other + 4096] = second, first


def _header(data: bytearray, chance: Random) -> None:
    data[chance.randrange(100)] = chance.randrange(256)


WAYS: tuple[Callable[[bytearray, Random], None], ...] = (_flip, _letters, _letters, _cut, _noise, _swap, _header)


def _spoil(path: Path, chance: Random) -> str:
    """Put values of the wrong kind into columns, as another program may -> what was done."""
    done = []
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA ignore_check_constraints=ON")
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(chance.choice((1, 1, 5))):
            table = chance.choice([name for name in tables if not name.startswith("sqlite_")])
            column = chance.choice([row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')])
            value = chance.choice(_ODD)
            with suppress(sqlite3.Error):
                connection.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = ?', (value,))
                done.append(f"{table}.{column} = {value!r}")
    finally:
        connection.close()
    return ", ".join(done)


def damaged_files(ground: Ground, tally: Tally) -> None:
    """A filled file, or its log, is damaged in some way; then everything is asked of it."""
    whole, logged = ground.folder / "whole.db", ground.folder / "logged.db"
    with Store.open(f"sqlite:///{whole}") as store, ExitStack() as stack:
        fill(store, FrozenClock(), stack)
    kept: dict[str, bytes] = {}
    with Store.open(f"sqlite:///{logged}") as store, ExitStack() as stack:
        fill(store, FrozenClock(), stack)
        kept = {beside: logged.with_name(logged.name + beside).read_bytes() for beside in ("", "-wal")}
    for number in ground.rounds():
        chance, path = ground.random, ground.folder / f"damaged{number}.db"
        wal = chance.random() < 0.3
        files = {beside: bytearray(data) for beside, data in (kept if wal else {"": whole.read_bytes()}).items()}
        how = chance.choice((*WAYS, None, None, None))
        if how is not None:
            how(files["-wal" if wal and chance.random() < 0.7 else ""], chance)
        for beside, data in files.items():
            path.with_name(path.name + beside).write_bytes(data)
        said = _spoil(path, chance) if how is None else how.__name__
        _ask_everything(path, f"round {number}, {said}{', with a log' if wal else ''}", tally)
        tally.rounds += 1
        for beside in ("", *_BESIDE):
            path.with_name(path.name + beside).unlink(missing_ok=True)


def _ask_everything(path: Path, said: str, tally: Tally) -> None:
    def ask(what: str, function: Callable[[], object]) -> None:
        try:
            function()
            tally.acknowledged += 1
        except PersistError as error:
            tally.errors[type(error).__name__] += 1
        except Exception as error:
            frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
            ours = [Path(name) for name in frames if Path(name).is_relative_to(_ROOT)]
            if ours[-1].is_relative_to(_ROOT / "persist"):  # values are handed out as they are; to write them is the caller's
                tally.problems.append(f"{said}: {what}: {traceback.format_exc()}")

    try:
        store = Store.open(f"sqlite:///{path}")
    except PersistError as error:
        tally.errors[type(error).__name__] += 1
        return
    with store:
        ask("reading", lambda: transcript(store))
        ask("doctor", lambda: doctor(store))
        ask("stats", lambda: stats(store))
        ask("writing", lambda: _write(store))
        ask("export", lambda: export(store, io.BytesIO()))
        ask("maintain", lambda: maintain(store))
        ask("backup", lambda: backup(store, path.with_name("copy.db"), overwrite=True))
        ask("vacuum", lambda: vacuum(store))
        ask("doctor --fix", lambda: doctor(store, fix=True))


def _write(store: Store) -> str:
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="build", model={}).id
        tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "x"}])
        tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan")
    return session


# ---------------------------------------------------------------- files that go away


def vanishing_files(ground: Ground, tally: Tally) -> None:
    """What belongs to a file is removed while the store is closed, or the file itself goes, or is replaced, under an open one."""
    for number in ground.rounds():
        path = ground.folder / f"vanishing{number}.db"
        url = f"sqlite:///{path}"
        with Store.open(url) as store:
            session = _write(store)
            checkpoint(store, mode="TRUNCATE")
            how = ground.random.choice(("log", "shm", "removed", "replaced", "emptied"))
            if how in ("removed", "replaced", "emptied"):
                _take_away(how, path, tally, store)
        if how in ("log", "shm"):
            path.with_name(path.name + {"log": "-wal", "shm": "-shm"}[how]).unlink(missing_ok=True)
            with Store.open(url) as store, store.read() as tx:
                tally.lost += [one.id for one in tx.chat.sessions.list().items] != [session]
                tally.acknowledged += 1
        with Store.open(url) as store:
            _write(store)
        intact(url, tally)
        tally.rounds += 1


def _take_away(how: str, path: Path, tally: Tally, store: Store) -> None:
    """The open store may go on with the file that has no name any more, or fail with an error of ours; nothing else."""
    if how == "replaced":
        with Store.open(f"sqlite:///{path.with_name('other.db')}") as other:
            _write(other)
        path.with_name("other.db").replace(path)
    elif how == "removed":
        path.unlink()
    else:
        with open(path, "r+b") as file:
            file.truncate(0)
    for function in (lambda: _write(store), lambda: doctor(store), lambda: transcript(store)):
        try:
            function()
        except PersistError as error:
            tally.errors[type(error).__name__] += 1
    with suppress(PersistError):
        store.close()
    for beside in _BESIDE:
        path.with_name(path.name + beside).unlink(missing_ok=True)


SCENARIOS = [
    Scenario("files that are damaged", ("sqlite",), damaged_files, 2.0),
    Scenario("files that go away", ("sqlite",), vanishing_files, 0.5),
]
