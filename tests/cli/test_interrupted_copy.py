"""Ctrl-C in `persist copy`, in processes of their own, at many instants: one line, exit code 130, and no half of a copy."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from persist import Store
from persist.errors import NotFound, SchemaOutdated
from persist.maintenance import copy
from tests.contract.conftest import Raw
from tests.maintenance.moving import many
from tests.markdown import ROOT
from tests.subprocesses import Worker

ROWS = 500
STARTING = [0.0, 0.3, 0.6]
"""While the interpreter and the package load, which takes two thirds of the calls: no database is opened before."""
COPYING = [0.0, 0.4, 0.6, 0.75, 0.85, 0.9, 0.95, 1.0]
KINDS = {"the same kind": 0, "the other kind": 1}
EVERY = os.environ.get("PERSIST_EXPLORE") == "1"
MARGIN = 4
"""Calls of the worker itself, at both ends."""
WORKER = "tests.cli.interrupted_worker"


def fresh(at: int, *urls: str) -> tuple[int, str]:
    """The return code and the standard error of an interpreter that loads everything itself."""
    line = [sys.executable, "-m", WORKER, str(at), "copy", *urls, "-q"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


def forked(at: int, *urls: str) -> tuple[int, str]:
    """The same of a process that has loaded most of persist already."""
    with Worker(WORKER, at, "copy", *urls, "-q", errors=True) as worker:
        said, _ = worker.communicate(timeout=120)
    return worker.wait(), said


def calls_of(run: Callable[..., tuple[int, str]], *urls: str) -> int:
    """How many calls an undisturbed copy takes."""
    code, said = run(0, *urls)
    assert code == 0, said
    return int(said.split()[-1])


def at(instant: float, calls: int) -> int:
    return MARGIN + int(instant * (calls - 2 * MARGIN))


def interrupted(instant: float, calls: int, source: str, new_target: Callable[[], str]) -> str:
    """The target of a copy that was interrupted at the instant. One that takes fewer calls than another did may end before it."""
    while True:
        target = new_target()
        code, said = forked(at(instant, calls), source, target)
        if code != 0:
            assert (code, said.count("\n")) == (130, 1), said
            assert said in (
                "Interrupted before anything was done.\n",
                "Interrupted. A copy that is not complete is undone: DST is without rows.\n",
                "Interrupted.\n",
            )
            return target
        ended_after = int(said.split()[-1])
        if instant == COPYING[-1] and copied(target) == ROWS:
            return target  # a signal after the work changes nothing
        assert ended_after < at(instant, calls), "the signal came, and nobody heard it"
        calls = ended_after


def copied(url: str) -> int:
    """How many messages are there; none where there is no table for them, or no file."""
    with suppress(NotFound, SchemaOutdated), Store.open(url, read_only=True), closing(Raw(url)) as raw:
        return raw.count("messaging_messages")
    return 0


@pytest.fixture(params=KINDS)
def new_target(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    if (request.param == "the same kind") == (backend == "postgres"):
        create: Callable[[], str] = request.getfixturevalue("new_postgres_database")
        return create
    paths = (tmp_path / f"target-{number}.db" for number in range(1000))
    return lambda: f"sqlite:///{next(paths).as_posix()}"


def test_at_any_instant(backend: str, database_url: str, new_target: Callable[[], str], request: pytest.FixtureRequest) -> None:
    """Of two neighbouring instants each pair of databases has one, and each database has both; all, when exploring."""
    odd = (KINDS[request.node.callspec.params["new_target"]] + (backend == "postgres")) % 2
    many(database_url, ROWS)
    calls = calls_of(forked, database_url, new_target())
    found = []
    for instant in COPYING if EVERY else COPYING[odd::2]:
        target = interrupted(instant, calls, database_url, new_target)
        found.append(copied(target))
        if not found[-1]:
            again = target
    assert set(found) <= {0, ROWS}
    with Store.open(database_url) as reading, Store.open(again) as writing:
        copy(reading, writing)
    assert copied(again) == ROWS


def test_while_it_starts(sqlite_url: str, tmp_path: Path) -> None:
    many(sqlite_url, 1)
    target = tmp_path / "target.db"
    urls = sqlite_url, f"sqlite:///{target.as_posix()}"
    fresh(-1, *urls)  # compiles the modules that it imports, which takes calls of its own
    target.unlink()
    calls = calls_of(fresh, *urls)
    target.unlink()
    for instant in STARTING:
        assert fresh(at(instant, calls), *urls) == (130, "Interrupted before anything was done.\n"), instant
        assert not target.exists()
