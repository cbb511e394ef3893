"""The command in this process, on a database of the test's own."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persist.cli import main
from tests.maintenance.pruning_scenes import forty_days_later
from tests.prepared import Prepared

Command = Callable[..., Result]


def everything(url: str) -> None:
    """Something in every table, all of it forty days old."""
    with forty_days_later(url):
        pass


@pytest.fixture
def filled(backend: str, tmp_path: Path, prepared: Prepared) -> Iterator[str]:
    """The test's database, with something in every table that is forty days old."""
    with prepared.lend(everything, backend, tmp_path) as url:
        yield url


@pytest.fixture
def database_url(backend: str, request: pytest.FixtureRequest) -> str:
    """Of a test that asks for `filled`, that one."""
    return str(request.getfixturevalue("filled" if "filled" in request.fixturenames else f"{backend}_url"))


@pytest.fixture
def command(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`command("runs", "ls", …)` against the test's database, named by the environment."""
    for name in [name for name in os.environ if name.startswith("PERSIST_")]:
        if not name.startswith(("PERSIST_TEST_", "PERSIST_REQUIRE_", "PERSIST_UPDATE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PERSIST_DATABASE_URL", database_url)
    return lambda *args, **options: CliRunner().invoke(main, list(args), **options)
