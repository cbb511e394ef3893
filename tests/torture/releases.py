"""The release before: its code has a database open, and goes on with it, while this code upgrades it and uses it, too."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from persist import Store
from persist.errors import PersistError
from persist.schema.metadata import REVISIONS
from persist.schema.migrate import upgrade
from tests.schema.places import ROOT, VERSIONS
from tests.schema.test_upgrades import FOLDER
from tests.torture import older
from tests.torture.scenario import Ground, Scenario, Tally, intact

_SECONDS = 60
"""For anything the other process does; far more than it takes."""


class NoHistory(Exception):  # noqa: N818  # a reason, and no failure
    """The code of older releases cannot be had here."""


def code_of(revision: str, folder: Path) -> Path:
    """The package as it was when that revision was the newest, from the history of the repository."""
    target = folder / f"release {revision}"
    if target.exists():
        return target
    archive = _git("archive", _last_commit_of(revision), "persist", "alembic")
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(target, filter="data")
    return target


def older_revisions() -> list[str]:
    """Those that were the newest once. Of several that came in one change, only the last one was."""
    return [revision for revision in REVISIONS[:-1] if _newest_at(_last_commit_of(revision)) == revision]


def _last_commit_of(revision: str) -> str:
    """The commit before the next revision was added."""
    (file,) = VERSIONS.glob(f"{REVISIONS[REVISIONS.index(revision) + 1]}_*.py")
    added = _git("log", "--diff-filter=A", "--format=%H", "--", str(file.relative_to(ROOT))).decode().split()
    if not added:
        raise NoHistory
    return f"{added[-1]}^"


def _newest_at(commit: str) -> str:
    """The newest revision in that commit."""
    names = _git("ls-tree", "--name-only", "--full-tree", commit, "alembic/versions/").decode().split()
    return max(name.rpartition("/")[2].partition("_")[0] for name in names if name.endswith(".py"))


def _git(*arguments: str) -> bytes:
    try:
        return subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise NoHistory from None


class Older:
    """A process of an older release that writes."""

    def __init__(self, code: Path, url: str, schema: str, revision: str) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, older.__file__, url, schema, revision],
            env={**os.environ, "PYTHONPATH": str(code), "PYTHONIOENCODING": "utf-8:backslashreplace"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._errors = ""
        self._listeners = [threading.Thread(target=listen, daemon=True) for listen in (self._listen, self._complain)]
        for listener in self._listeners:
            listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(line.strip() for line in iter(self._process.stdout.readline, ""))

    def _complain(self) -> None:
        assert self._process.stderr is not None
        self._errors = self._process.stderr.read()

    def wait_for(self, count: int) -> None:
        """Until it has said so many things more, or ended."""
        wanted, deadline = len(self.lines) + count, time.monotonic() + _SECONDS
        while len(self.lines) < wanted and self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)

    def kill(self) -> None:
        """So that nothing is left behind, whatever happened; one that ended is no more than waited for."""
        self._process.kill()
        self._process.wait()

    def end(self) -> str | None:
        """Let it look once more at what it wrote -> what was wrong with it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # its error says why
            self._process.stdin.write("end\n")
            self._process.stdin.flush()
        try:
            code = self._process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"it hangs after {self.lines[-1:]}"
        finally:
            for listener in self._listeners:
                listener.join(_SECONDS)
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                with suppress(BrokenPipeError):  # of what it was not there to read; its error says why
                    pipe.close()  # type: ignore[union-attr]  # each is a pipe
        return None if code == 0 else f"it ended with {code}: {self._errors[-1500:]}"


def upgraded_under_an_older_release(ground: Ground, tally: Tally) -> None:
    """Neither side loses anything nor meets an error that is not promised, and the doctor finds none."""
    try:
        revisions = older_revisions()
    except NoHistory:
        tally.errors["not run: no history of the repository"] += 1
        return
    for number in ground.rounds():
        revision = revisions[-1] if number % 2 == 0 else ground.random.choice(revisions)
        code = code_of(revision, ground.folder)
        schema = f"older_{number}"
        url = ground.new_url()
        if url.startswith("sqlite") and ground.random.random() < 0.5:
            shutil.copyfile(FOLDER / f"{revision}.db", url.removeprefix("sqlite:///"))
        process = Older(code, url, schema, revision)
        try:
            _one(ground, tally, process, url, schema, revision)
        finally:
            process.kill()


def _one(ground: Ground, tally: Tally, process: Older, url: str, schema: str, revision: str) -> None:
    problems: list[str] = []
    process.wait_for(1 + ground.random.randrange(8))
    try:
        upgrade(url, schema=schema)
        with Store.open(url, schema=schema) as store:
            for number in range(5):
                _write(store, f"new {number}", tally)
            process.wait_for(5)
            wrong = process.end()
            problems += [] if wrong is None else [wrong]
            rounds = [int(line) for line in process.lines if line.isdigit()]
            lost = [f"{what}, for this release" for what in older.missing(store, revision, rounds)]
            lost += [line for line in process.lines if line.startswith("lost")]
            with store.read() as tx:
                for number in range(5):
                    lost += [
                        f"{domain} of this release"
                        for domain, _, seen in older.known(REVISIONS[-1])
                        if not seen(tx, f"new {number}")
                    ]
    except PersistError as error:
        problems += [f"this release met {error!r}", process.end() or ""]
    else:
        tally.acknowledged += len(rounds) + 5
        tally.lost += len(lost)
        problems += lost
        intact(url, tally, schema=schema)
    tally.rounds += 1
    tally.errors.update(line.removeprefix("busy ") for line in process.lines if line.startswith("busy"))
    tally.problems += [f"release {revision}: {problem}" for problem in problems]


def _write(store: Store, name: str, tally: Tally) -> None:
    def write(tx: object) -> None:
        for _, write, _ in older.known(REVISIONS[-1]):
            write(tx, name)

    store.transact(write)
    older.record(store, name)


SCENARIOS = [Scenario("upgraded under an older release", ("sqlite", "postgres"), upgraded_under_an_older_release, weight=1.5)]
