"""`persist prune` and `persist tenants`: they say exactly what goes, ask on a terminal, and have no age of their own."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persist import Store
from persist.cli import main
from persist.maintenance import prunable, prune
from persist.schema.metadata import HEAD
from tests.cases import each
from tests.cli.conftest import Command
from tests.cli.golden import assert_golden
from tests.contract.chat.scenes import create
from tests.maintenance.pruning_scenes import DOMAINS, every_row

WHEN = {r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d": "INSTANT"}


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_dry_run_and_then_the_run(command: Command, filled: str, domain: str) -> None:
    before = every_row(filled)
    trial = command("prune", domain, "--older-than", "1d", "--dry-run")
    assert trial.exit_code == 0
    assert every_row(filled) == before
    result = command("prune", domain, "--older-than", "1d")
    assert (result.exit_code, result.stdout) == (0, trial.stdout)
    assert_golden(f"prune_{domain}", f"{trial.output}{result.output}", WHEN)


def test_json_is_the_report(command: Command, filled: str) -> None:
    with Store.open(filled) as store:
        report = prune(store, "telemetry", older_than=timedelta(days=1), keep=1, dry_run=True)
    found = json.loads(command("prune", "telemetry", "--older-than", "1d", "--keep", "1", "--dry-run", "--json").stdout)
    assert found["tables"] == report.tables
    assert found.keys() == {"what", "before", "keep", "dry_run", "tables", "files", "kept", "total"}
    assert (found["total"], found["keep"], found["dry_run"]) == (report.total, 1, True)


def test_quiet_says_nothing(command: Command, filled: str) -> None:
    result = command("prune", "chat", "--older-than", "1d", "-q")
    assert (result.exit_code, result.output) == (0, "")


def test_nothing_to_prune(command: Command, filled: str) -> None:
    result = command("prune", "chat", "--older-than", "99999w")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("Deleted 0 rows of chat from before ")


def test_there_is_no_age_but_the_one_that_is_given(command: Command, filled: str) -> None:
    before = every_row(filled)
    for what in prunable():
        result = command("prune", what)
        assert (result.exit_code, result.stdout) == (2, ""), what
        assert "--older-than" in result.stderr, what
    assert every_row(filled) == before


@each(("age", "span"), [("90m", 5400), ("12h", 43_200), ("30d", 2_592_000), ("2w", 1_209_600), ("1.5s", 1.5)])
def test_ages(command: Command, filled: str, age: str, span: float) -> None:
    told = json.loads(command("prune", "chat", "--older-than", age, "--dry-run", "--json").stdout)["before"]
    assert abs((datetime.now(UTC) - datetime.fromisoformat(told)).total_seconds() - span) < 60


def test_called_wrongly(command: Command, filled: str) -> None:
    before = every_row(filled)
    for wrong in (
        ("chat", "--older-than", "30"),
        ("chat", "--older-than", "d"),
        ("chat", "--older-than", "-1d"),
        ("chat", "--older-than", "1 d"),
        ("chat", "--older-than", "1month"),
        ("chat", "--older-than", "999999999w"),
        ("chat", "--older-than", "1d", "--keep", "-1"),
        ("nothing", "--older-than", "1d"),
        ("--older-than", "1d"),
    ):
        result = command("prune", *wrong)
        assert (result.exit_code, result.stdout) == (2, ""), wrong
    assert every_row(filled) == before


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_on_a_terminal_it_asks(command: Command, filled: str, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    monkeypatch.setattr("persist.cli.operations.asks", lambda: True)
    before = every_row(filled)
    result = command("prune", "messaging", "--older-than", "1d", input=answer)
    assert result.exit_code == code
    assert "Would delete 2 rows of messaging" in result.stderr
    assert (every_row(filled) == before) == (code == 1)
    assert (result.stdout == "") == (code == 1)


@pytest.mark.parametrize("sure", ["--yes", "--dry-run"])
def test_it_does_not_ask_who_is_sure(command: Command, filled: str, monkeypatch: pytest.MonkeyPatch, sure: str) -> None:
    monkeypatch.setattr("persist.cli.operations.asks", lambda: True)
    result = command("prune", "messaging", "--older-than", "1d", sure)
    assert result.exit_code == 0
    assert "Delete them?" not in result.output


# `persist tenants` and `persist upgrade --all-schemas`, as an operator meets them.


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
