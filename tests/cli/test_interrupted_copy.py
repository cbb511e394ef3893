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

ROWS = 500
INSTANTS = [0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0]
KINDS = {"the same kind": 0, "the other kind": 1}
EVERY = os.environ.get("PERSIST_EXPLORE") == "1"
MARGIN = 4
"""Calls of the worker itself, at both ends."""


def interrupted(at: int, *urls: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tests.cli.interrupted_worker", str(at), "copy", *urls, "-q"]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)


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
    interrupted(0, database_url, new_target())  # compiles the modules that it imports, which takes calls of its own
    whole = interrupted(0, database_url, new_target())
    assert whole.returncode == 0, whole.stderr
    calls = int(whole.stderr.split()[-1])
    found = []
    for instant in INSTANTS if EVERY else INSTANTS[odd::2]:
        target = new_target()
        done = interrupted(MARGIN + int(instant * (calls - 2 * MARGIN)), database_url, target)
        assert (done.returncode, done.stderr) == (130, "Interrupted.\n"), instant
        found.append(copied(target))
        if not found[-1]:
            again = target
    assert set(found) <= {0, ROWS}
    with Store.open(database_url) as reading, Store.open(again) as writing:
        copy(reading, writing)
    assert copied(again) == ROWS
