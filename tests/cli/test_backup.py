"""`persist backup`, `persist checkpoint` and `persist vacuum`."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result

from persist import Store
from tests.cli.golden import assert_golden

Command = Callable[..., Result]

_SIZES = {r"'?postgresql://\S*": "URL", r"'(FOLDER/\S*)'": r"\1", r"\d[\d,.]* (?:B|KB|MB)\b": "SIZE"}


@pytest.fixture
def file(sqlite_url: str) -> str:
    with Store.open(sqlite_url) as store, store.begin() as tx:
        tx.chat.prompts.put("Be brief.")
    return sqlite_url


def test_backing_up(command: Command, file: str, tmp_path: Path) -> None:
    result = command("backup", str(tmp_path / "copy.db"), "--url", file)
    assert (result.exit_code, result.stderr) == (0, "")
    assert_golden("backup", result.stdout, _SIZES, folder=tmp_path)
    assert command("doctor", "--url", f"sqlite:///{tmp_path / 'copy.db'}").stdout == "Nothing is wrong.\n"


def test_backing_up_twice(command: Command, file: str, tmp_path: Path) -> None:
    target = str(tmp_path / "copy.db")
    assert command("backup", target, "-q", "--url", file).stdout == ""
    refused = command("backup", target, "--url", file)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert_golden("backup-refused", refused.stderr, _SIZES, folder=tmp_path)
    forced = command("backup", target, "--force", "--json", "--url", file)
    assert forced.exit_code == 0
    assert json.loads(forced.stdout)["path"] == target
    assert json.loads(forced.stdout)["bytes"] == Path(target).stat().st_size


def test_a_server_says_what_to_run_instead(command: Command, postgres_url: str, tmp_path: Path) -> None:
    result = command("backup", str(tmp_path / "copy.dump"), "--url", postgres_url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert_golden("backup-postgres", result.stderr, _SIZES, folder=tmp_path)
    result = command("checkpoint", "--url", postgres_url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert_golden("checkpoint-postgres", result.stderr)


def test_a_password_is_not_repeated(command: Command, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the server trusts everybody, it asks for none, and takes any."""
    user, _, rest = postgres_url.partition("@")
    name = user.partition("://")[2].partition(":")[0]
    secret = user.partition("://")[2].partition(":")[2] or "s3cret"
    result = command("backup", str(tmp_path / "copy.dump"), "--url", f"postgresql://{name}:{secret}@{rest}")
    assert result.exit_code == 1
    assert "pg_dump" in result.stderr
    assert f":{secret}@" not in result.stderr


def test_no_command_makes_a_file(command: Command, tmp_path: Path) -> None:
    for call in (["backup", str(tmp_path / "copy.db")], ["checkpoint"], ["vacuum"]):
        result = command(*call, "--url", f"sqlite:///{tmp_path / 'none.db'}")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_no_command_fills_an_empty_file(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    for call in (["backup", str(tmp_path / "copy.db")], ["checkpoint"], ["vacuum"]):
        assert command(*call, "--url", f"sqlite:///{path}").exit_code == 1
    assert path.read_bytes() == b""


def test_checkpoint(command: Command, file: str) -> None:
    assert command("checkpoint", "--url", file).stdout == "Checkpointed; the log is empty.\n"
    assert json.loads(command("checkpoint", "--mode", "passive", "--json", "--url", file).stdout)["busy"] == 0
    assert command("checkpoint", "--mode", "FULL", "-q", "--url", file).stdout == ""
    assert command("checkpoint", "--mode", "FAST", "--url", file).exit_code == 2


def test_a_checkpoint_with_somebody_in_the_way(command: Command, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSIST_BUSY_TIMEOUT_MS", "20")
    with closing(sqlite3.connect(file.removeprefix("sqlite:///"), isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM system_prompts").fetchone()
        with Store.open(file) as store, store.begin() as tx:
            tx.chat.prompts.put("Be briefer.")
        result = command("checkpoint", "--url", file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "in the way" in result.stderr


def test_vacuum(command: Command, database_url: str) -> None:
    Store.open(database_url).close()
    result = command("vacuum")
    assert (result.exit_code, result.stderr) == (0, "")
    assert_golden("vacuum", result.stdout, _SIZES)
    found = json.loads(command("vacuum", "--json").stdout)
    assert min(found["before"], found["after"]) > 0
    assert command("vacuum", "-q").stdout == ""
