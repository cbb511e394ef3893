"""Run files that shells write to as well: rows that name what is not theirs, links and pipes, and one name bound by many."""

import os
import shutil
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from persist import Store
from persist.db.dialects.sqlite.row_guards import lift_row_guards
from persist.errors import InvalidValue, NotFound
from persist.programs import audit, create_run_file, instructions_for_subagent, open_run_file
from persist.programs.subagents.instructions import SUMMARY, bind_sql, command
from persist.settings import Settings
from tests.command_line import Sqlite3, find_sqlite3
from tests.torture.scenario import Ground, Missing, Scenario, Tally, healthy, whole

_SMALL = Settings(attachment_bytes=1000)
_ROUNDS = 25
"""So many rounds one run file lives for."""
_ESCAPES = ("state.db", "./state.db", "state.db-wal", "state.db-shm", "program.prose", "attachments/../state.db", "attachments")
_SOURCE = "let x = 1"


class Bench:
    """One run file, open here all the while, the shells beside it, and everything that either was told is written."""

    def __init__(self, ground: Ground, number: int, shells: Sqlite3, tally: Tally) -> None:
        self.random, self.shells, self.tally = ground.random, shells, tally
        root = ground.folder / f"{number}"
        root.mkdir()
        self.store: Store = create_run_file(root, program_source=_SOURCE, settings=_SMALL)
        assert self.store.path is not None
        assert self.store.run_id is not None
        self.path, self.run = self.store.path, self.store.run_id
        self.attachments = self.path.parent / "attachments"
        self.attachments.mkdir(mode=0o700)
        self.owned = root / "owned"
        self.written: dict[str, str] = {}

    def bind(self, name: str, value: str, *, summary: str | None = None) -> None:
        """By the library."""
        with self.store.begin() as tx:
            tx.programs.bindings.bind(self.run, name, value, summary=summary)
        self.told(name, value)

    def raw(self, sql: str) -> None:
        """By a shell that then leaves."""
        done = self.shells.shell(command(self.path, sql))
        if (done.returncode, done.stderr) != (0, ""):
            self.tally.problems.append(f"{self.path}: a shell was told {done.stderr!r}")

    def raw_before_guards(self, sql: str) -> None:
        """By a shell that takes the row guards away first, and puts them back."""
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=30)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            restore = lift_row_guards(connection)
            connection.execute(sql)
            restore()
            connection.execute("COMMIT")

    def told(self, name: str, value: str) -> None:
        """It is acknowledged."""
        self.written[name] = value
        self.tally.acknowledged += 1

    def read(self, name: str) -> str | None:
        """What the name means, read by this process."""
        with self.store.read() as tx:
            return tx.programs.bindings.resolve(self.run, name).value

    def look(self, *others: str) -> None:
        """By a store that is opened anew, when nobody else is there. `others`: findings of an audit that are expected."""
        self.store.close()
        whole(f"sqlite:///{self.path.as_posix()}", self.tally)
        with open_run_file(self.path, settings=_SMALL) as self.store:
            for name, value in self.written.items():
                try:
                    found = self.read(name)
                except (NotFound, InvalidValue) as error:
                    found = str(error)
                if found != value:
                    self.tally.lost += 1
                    self.tally.problems.append(f"{self.path}: {name} was {value[:20]!r}, and is {str(found)[:100]!r}")
            if strange := [one for one in audit(self.store, self.run) if one.code not in {*others, "raw_write"}]:
                self.tally.problems.append(f"{self.path}: {strange}")
            if "attachment_escapes" not in others:
                healthy(self.store, str(self.path), self.tally)
        if self.path.with_name("program.prose").read_text() != _SOURCE or self.owned.exists():
            self.tally.problems.append(f"{self.path}: something was written that is not a value")


def hostile_rows(ground: Ground, tally: Tally) -> None:
    """A shell names or plants something, the library resolves it and binds the name anew, and both go on writing."""
    for number, shells in _benches(ground):
        bench = Bench(ground, number, shells, tally)
        with _exchanging(bench):
            for round in range(_ROUNDS):
                name = f"hostile {round % 3}"
                path = bench.random.choice([*_ESCAPES, *_planted(bench, round)])
                bench.raw_before_guards(bind_sql(name, "a summary", attachment_path=path))
                bench.written.pop(name, None)
                for refused in (name, "exchanged"):
                    with suppress(InvalidValue, NotFound):
                        if (text := bench.read(refused)) != "a regular file":
                            tally.problems.append(f"{bench.path}: {path} was read as {str(text)[:50]!r}")
                bench.bind(f"small {round}", f"{round}")
                bench.raw(bind_sql(f"shell {round}", f"{round}"))
                bench.told(f"shell {round}", f"{round}")
                if bench.random.random() < 0.7:
                    bench.bind(name, f"{round} " + "x" * bench.random.choice((10, 5000)))
                tally.rounds += 1
        bench.look("attachment_unused", "attachment_escapes")


def _planted(bench: Bench, round: int) -> list[str]:
    """Something in attachments/ that is no regular file of its own, and one that is."""
    place = bench.attachments / f"planted {round}"
    plant: Callable[[], object] = bench.random.choice(
        [
            lambda: place.symlink_to(bench.path),
            lambda: place.symlink_to(bench.path.with_name("program.prose")),
            lambda: place.symlink_to(bench.path.parent),
            lambda: os.link(bench.path, place),
            lambda: os.link(f"{bench.path}-wal", place),
            lambda: os.link(f"{bench.path}-shm", place),
            lambda: os.mkfifo(place),
            lambda: _socket(place),
            lambda: place.mkdir(),
            lambda: place.write_text("a regular file"),
        ]
    )
    plant()
    return [f"attachments/{place.name}", f"attachments/{place.name}/state.db", f"./attachments//{place.name}"]


def _socket(place: Path) -> None:
    folder = os.open(place.parent, os.O_RDONLY)  # the path itself is longer than such a name may be
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"/proc/self/fd/{folder}/{place.name}")
    finally:
        os.close(folder)


@contextmanager
def _exchanging(bench: Bench) -> Iterator[None]:
    """A row whose file is a regular one, a link to the database, the database itself and a pipe in turn, as fast as it goes."""
    bench.raw(bind_sql("exchanged", "a summary", attachment_path="attachments/exchanged"))
    over, next_one = threading.Event(), bench.attachments / "next"

    def exchange() -> None:
        turns: list[Callable[[], object]] = [
            lambda: next_one.write_text("a regular file"),
            lambda: next_one.symlink_to(bench.path),
            lambda: os.link(bench.path, next_one),
            lambda: os.mkfifo(next_one),
        ]
        while not over.is_set():
            for turn in turns:
                turn()
                os.replace(next_one, bench.attachments / "exchanged")
                time.sleep(0)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def many_bind_one_name(ground: Ground, tally: Tally) -> None:
    """Two shells, each as it was instructed, and the library, all at once: whoever is last, row and file are of one of them."""
    for number, shells in _benches(ground):
        bench = Bench(ground, number, shells, tally)
        for round in range(_ROUNDS):
            values = {letter: f"{round}{letter} " + letter * 20_000 for letter in "abc"}
            running = [_instructed(bench, f"{round}{letter}", values[letter]) for letter in "ab"]
            bench.bind("report", values["c"], summary=_summary(bench, f"{round}c"))
            for shell in running:
                _, said = shell.communicate(timeout=60)
                if (shell.returncode, said) != (0, ""):
                    tally.problems.append(f"{bench.path}: a shell was told {said!r}")
                tally.acknowledged += 1
            with bench.store.read() as tx:
                row = tx.programs.bindings.get(bench.run, "report")
            assert row is not None
            last = str(row.value).partition("\n")[0]
            found = bench.read("report")
            if found != values.get(last[-1]) or not last.startswith(f"{round}"):
                tally.lost += 1
                tally.problems.append(f"{bench.path}: the row of {last!r} has the text {str(found)[:20]!r}")
            bench.written["report"] = values[last[-1]]
            if bench.random.random() < 0.5:  # a second row of the same file, which must outlive the first
                bench.raw(
                    "INSERT INTO bindings (name, kind, value, attachment_path) "
                    f"SELECT 'copy {round}', 'let', value, attachment_path FROM bindings WHERE name = 'report'"
                )
                bench.told(f"copy {round}", values[last[-1]])
            tally.rounds += 1
        bench.look("attachment_unused")


def _instructed(bench: Bench, summary: str, value: str) -> "subprocess.Popen[str]":
    """A subagent's shell: it writes the file that its own text names, and then the row."""
    text = instructions_for_subagent(bench.store, bench.run, binding="report")
    target = next(line.strip() for line in text.splitlines() if line.startswith("  ") and line.endswith(".md"))
    start = text.rindex("sqlite3 ", 0, text.index(SUMMARY))
    mark = text[start:].split("<<'", 1)[1].partition("'")[0]
    told = text[start : text.index(f"\n{mark}\n", start)] + f"\n{mark}\n"
    line = f"printf %s \"$WHAT\" > '{target}' && {told.replace(SUMMARY, _summary(bench, summary))}"
    env: dict[str, Any] = {**bench.shells.env, "WHAT": value}
    return subprocess.Popen(["sh", "-c", line], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")


def _summary(bench: Bench, name: str) -> str:
    """What would run where it ended the command."""
    return f"{name}\nEND_OF_SQL\ntouch {bench.owned}\n"


def _benches(ground: Ground) -> Iterator[tuple[int, Sqlite3]]:
    binary = find_sqlite3()
    if binary is None:
        raise Missing("sqlite3 command line")
    (ground.folder / "bin").mkdir()
    shells = Sqlite3(binary, ground.folder / "bin")
    for number in ground.rounds():
        yield number, shells
        shutil.rmtree(ground.folder / f"{number}")


SCENARIOS = [
    Scenario("hostile rows, links and pipes", ("sqlite",), hostile_rows),
    Scenario("shells and the library bind one name", ("sqlite",), many_bind_one_name),
]
