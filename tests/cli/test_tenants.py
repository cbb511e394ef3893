"""`persist tenants` and `persist upgrade --all-schemas`, as an operator meets them."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persist import Store
from persist.cli import main
from persist.schema.metadata import HEAD
from tests.contract.chat.scenes import create

Run = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tenants"
    folder.mkdir()
    return folder


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PERSIST_DATABASE_URL", f"sqlite:///{folder.as_posix()}")
    return lambda *args, **options: CliRunner().invoke(main, list(args), **options)


def test_tenants_are_created_listed_and_dropped(run: Run) -> None:
    assert run("tenants", "ls").stderr == "No tenants.\n"
    assert run("tenants", "create", "beta").stdout == "Created beta.\n"
    assert json.loads(run("tenants", "create", "acme", "--json").stdout) == {"name": "acme"}
    again = run("tenants", "create", "acme")
    assert (again.exit_code, again.stderr) == (1, "Error: The tenant acme exists already.\n")
    assert run("tenants", "ls", "-q").stdout == "acme\nbeta\n"
    page = json.loads(run("tenants", "ls", "-n", "1", "--json").stdout)
    assert page["items"] == [{"name": "acme"}]
    assert run("tenants", "ls", "-q", "--after", page["cursor"]).stdout == "beta\n"
    assert run("tenants", "drop", "acme", "--yes", "acme").stdout == "Dropped acme.\n"
    assert run("tenants", "ls", "-q").stdout == "beta\n"


def test_dropping_needs_the_name_twice(run: Run) -> None:
    run("tenants", "create", "acme")
    for args, code, said in (((), 2, "repeat its name: --yes acme"), (("--yes", "yes"), 1, "repeat its name")):
        refused = run("tenants", "drop", "acme", *args)
        assert refused.exit_code == code
        assert said in refused.stderr
    assert "There is no tenant 'nobody'." in run("tenants", "drop", "nobody", "--yes", "nobody").stderr
    assert run("tenants", "ls", "-q").stdout == "acme\n"


def test_a_tenant_is_copied_to_another_server(run: Run, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    run("tenants", "create", "acme")
    with Store.open(f"sqlite:///{(folder / 'acme.db').as_posix()}") as store:
        create(store)
    done = run("tenants", "copy", "acme", f"sqlite:///{other.as_posix()}", "--as", "acme_2")
    assert done.stdout.endswith("of acme; both hold the same.\n")
    with Store.open(f"sqlite:///{(other / 'acme_2.db').as_posix()}") as store:
        assert len(store.chat.sessions.list().items) == 1


def test_a_tenant_is_copied_with_what_persist_does_not_know(run: Run, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    run("tenants", "create", "acme")
    with Store.open(f"sqlite:///{(folder / 'acme.db').as_posix()}") as store:
        create(store)
    with closing(sqlite3.connect(folder / "acme.db")) as raw, raw:
        raw.execute("ALTER TABLE chat_sessions ADD COLUMN colour TEXT")
        raw.execute("UPDATE chat_sessions SET colour = 'red'")
        raw.execute("CREATE TABLE x_notes (note TEXT)")
        raw.execute("INSERT INTO x_notes VALUES ('mine')")
    to = f"sqlite:///{other.as_posix()}"
    said = run("tenants", "copy", "acme", to).stdout.splitlines()
    assert said[0].endswith("both hold the same.")
    assert said[1:] == ["Copied with them, though persist does not know it: chat_sessions.colour (1), x_notes (1)."]
    with closing(sqlite3.connect(other / "acme.db")) as raw:
        assert raw.execute("SELECT colour, note FROM chat_sessions, x_notes").fetchall() == [("red", "mine")]
    said = run("tenants", "copy", "acme", to, "--as", "bare", "--leave-unknown").stdout.splitlines()
    assert said[0].endswith("what was copied was read back and is the same.")
    assert said[1] == "Left, as asked: chat_sessions.colour (1), x_notes (1)."
    report = json.loads(run("tenants", "copy", "acme", to, "--as", "again", "--leave-unknown", "--json").stdout)
    assert (report["carried"], report["left_unknown"]) == ({}, {"chat_sessions.colour": 1, "x_notes": 1})


def test_upgrading_all_says_what_became_of_each_and_fails_if_one_did(run: Run, folder: Path) -> None:
    run("tenants", "create", "acme")
    kept = Path(__file__).parents[1] / "schema" / "databases"
    for name in ("old", "broken"):
        (folder / f"{name}.db").write_bytes((kept / "0001.db").read_bytes())
    with closing(sqlite3.connect(folder / "broken.db")) as raw:
        raw.execute("CREATE TABLE workflow_limits (id INTEGER)")
    done = run("upgrade", "--all-schemas", "--parallel", "1")
    assert done.exit_code == 1
    assert "old: upgraded from 0001" in done.stdout
    assert "3 tenants: 1 upgraded, 1 current, 1 failed." in done.stdout
    assert "broken: " in done.stderr
    assert "1 of 3 tenants could not be upgraded" in done.stderr
    (folder / "broken.db").unlink()
    again = run("upgrade", "--all-schemas", "--json")
    assert again.exit_code == 0
    assert [(item["name"], item["status"]) for item in json.loads(again.stdout)["items"]] == [
        ("acme", "current"),
        ("old", "current"),
    ]
    with closing(sqlite3.connect(folder / "old.db")) as raw:
        assert raw.execute("SELECT version_num FROM persist_alembic_version").fetchone() == (HEAD,)


def test_a_server_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERSIST_DATABASE_URL", raising=False)
    refused = CliRunner().invoke(main, ["tenants", "ls"])
    assert (refused.exit_code, "Which server?" in refused.stderr) == (2, True)
