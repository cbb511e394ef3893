"""A SQLite file whose pages were overwritten, under every command that reads or writes it: one sentence, no traceback."""

import json
import math
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persist import Store
from persist.cli import main
from persist.testing import FrozenClock
from tests.cli.conftest import Command
from tests.statemachines.both_databases import alike
from tests.statemachines.scene import make


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """A command on a file that it names."""
    monkeypatch.delenv("PERSIST_DATABASE_URL", raising=False)
    monkeypatch.setattr("persist.cli.output._PLAIN_EVERY", math.inf)
    return lambda *args: CliRunner().invoke(main, list(args))


_OF_ONE = ["ls", "ls workflows", "runs ls", "stats", "usage", "doctor", "doctor --fix", "maintain", "upgrade", "check", "vacuum"]
_OF_ONE += [
    "prune chat --older-than 1d",
    "erase --owner maria",
    "events on",
    "watch --timeout 0",
    "export OUT -f",
    "backup OUT -f",
]
COMMANDS = [
    *(f"{command} --url URL" for command in _OF_ONE),
    "copy DAMAGED TARGET",
    "copy --resumable DAMAGED TARGET",
    "adopt DAMAGED",
]
SAYS_FINDINGS = ("doctor", "check", "maintain")
"""Commands whose findings are what they print on standard output."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "state.db"
    with Store.open(f"sqlite:///{path.as_posix()}", clock=FrozenClock()) as store:
        alike(store)
        make(store)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def _size(path: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(path)) as raw:
        return raw.execute("PRAGMA page_size").fetchone()[0], raw.execute("PRAGMA page_count").fetchone()[0]


def _header(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(16)
        file.write(b"\xff" * 84)


def _cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 + 123)


def _every(step: int, first: int, filling: bytes) -> Callable[[Path], None]:
    """Overwrite each so many-th page of a file, from one on; the first page is number 0."""

    def overwrite(path: Path) -> None:
        size, count = _size(path)
        with path.open("r+b") as file:
            for page in range(first, count, step):
                file.seek(page * size)
                file.write(filling * size)

    return overwrite


DAMAGES = {
    "header": _header,
    "cut": _cut,
    "rows": _every(2, 2, b"\0"),
    "other rows": _every(2, 3, b"\xff"),
    "some": _every(7, 5, b"\x0d"),
    "catalog": _every(3, 1, b"\x05"),
}


def _attempts(path: Path, whole: Path, damage: Callable[[Path], None], command: Command) -> Iterator[tuple[str, Result]]:
    damaged, target, out = path / "state.db", path / "target.db", path / "out"
    words = {"URL": f"sqlite:///{damaged.as_posix()}", "DAMAGED": str(damaged), "TARGET": str(target), "OUT": str(out)}
    for given in COMMANDS:
        for left in path.iterdir():
            left.unlink()
        shutil.copyfile(whole, damaged)
        damage(damaged)
        yield given, command(*(words.get(word, word) for word in given.split()))


@pytest.mark.parametrize("kind", DAMAGES)
def test_every_command_says_one_sentence(command: Command, whole: Path, tmp_path: Path, kind: str) -> None:
    wrong = []
    place = tmp_path / "place"
    place.mkdir()
    refused = 0
    for given, result in _attempts(place, whole, DAMAGES[kind], command):
        failed = result.exit_code != 0
        errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
        refused += len(errors)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            wrong.append(f"{given}: a bare {result.exception!r}")
        elif len(errors) > 1 or "Traceback" in result.stderr or "Exception ignored" in result.stderr:
            wrong.append(f"{given}: {result.stderr}")
        elif failed and not errors and not given.startswith(SAYS_FINDINGS):
            wrong.append(f"{given}: ends with {result.exit_code} and without a reason")
    assert wrong == []
    assert refused > 0


def test_the_sentence_is_an_object_with_json(command: Command, whole: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "state.db"
    shutil.copyfile(whole, damaged)
    _header(damaged)
    result = command("ls", "--json", "--url", f"sqlite:///{damaged.as_posix()}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert json.loads(result.stderr)["error"]["type"] == "StoreCorrupt"
