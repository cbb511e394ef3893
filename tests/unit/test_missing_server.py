"""A run of the tests without a Postgres, and the folders in which one can be started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases import PostgresNotFoundError, folder_for, unprivileged_user

ROOT = Path(__file__).parents[2]

_NO_SERVER = """
import tests.databases

def nothing():
    raise tests.databases.PostgresNotFoundError("Docker: no daemon;\\n the wheel: not installed")

tests.databases.postgres_server = nothing
"""


def _run(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Two tests, one of them on Postgres, in a process that finds no server."""
    (folder / "no_server.py").write_text(_NO_SERVER, encoding="utf-8")
    known = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PERSIST_", "POSTGRES"))}
    # The folder must be there before the plug-in is named; what pytest keeps between runs is not this run's.
    line = [sys.executable, "-m", "pytest", "-p", "no_server", "-p", "no:cacheprovider", f"--basetemp={folder / 'base'}"]
    return subprocess.run(
        [*line, "-q", "tests/contract/test_opening.py", "-k", "migrated_unless or created_when", *options],
        cwd=ROOT,
        env={**known, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.long
@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "a worker"])
def test_a_run_without_a_server_fails_and_says_how_to_allow_it(tmp_path: Path, options: tuple[str, ...]) -> None:
    ended = _run(tmp_path, *options)
    assert ended.returncode != 0
    told = [line for line in ended.stdout.splitlines() if line.startswith("!")]
    assert len(told) == 1, ended.stdout
    sentence = (
        "there is no Postgres: Docker: no daemon; the wheel: not installed. To leave its tests out: make test POSTGRES=skip"
    )
    assert sentence in told[0]


@pytest.mark.long
def test_a_run_without_a_server_may_be_allowed(tmp_path: Path) -> None:
    ended = _run(tmp_path, POSTGRES="skip")
    assert ended.returncode == 0, ended.stdout
    assert "there is no Postgres" in ended.stdout
    assert "skipped" in ended.stdout.splitlines()[-1]


def test_a_folder_is_taken_only_if_the_servers_user_may_enter_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = unprivileged_user()
    long = tmp_path / ("long " * 20)
    closed = tmp_path / "closed"
    for folder in (long, closed):
        folder.mkdir(mode=0o700)
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        found = folder_for(user)
        assert len(os.fsencode(found)) <= 60
        assert user is None or found != closed


def test_where_no_folder_is_fit_each_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(PostgresNotFoundError, match=r"no temporary folder can hold it: .*/var/tmp may not be written to"):
        folder_for(None)
