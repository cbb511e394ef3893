"""`persist doctor`: what it prints, and how it ends."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from persist import Store
from persist.testing import FrozenClock
from tests.cases import each
from tests.cli.golden import assert_golden
from tests.schema.places import Place

Command = Callable[..., Result]

_REPLACE = {
    r"which is \d{4}": "which is REVISION",
    r"(?:sqlite:////|/)\S*state\.db": "FILE",
    r"run_\w+?(?=[ :])": "RUN",
    r"ses_\w+": "SESSION",
}


@pytest.fixture
def ailing(database_url: str, clock: FrozenClock) -> Place:
    """An old run that nobody works on, arrays that lag, and a version mark of before."""
    with Store.open(database_url, clock=clock) as store, store.begin() as tx:
        tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan")
        tx.conversations.progressions.create("prg-1", ids=["a", "b"])
    place = Place(database_url)
    place.run(
        f"UPDATE {place.named('progressions')} SET folded = 0",
        f"UPDATE {place.named('_meta')} SET value = '0003' WHERE key = 'schema_version'",
    )
    return place


def test_a_healthy_store(command: Command, database_url: str) -> None:
    Store.open(database_url).close()
    result = command("doctor")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Nothing is wrong.\n", "")
    assert json.loads(command("doctor", "--json").stdout) == {"items": [], "cursor": None}
    assert command("doctor", "-q").stdout == ""


@pytest.mark.usefixtures("ailing")
def test_warnings_are_printed_and_do_not_fail(command: Command) -> None:
    result = command("doctor")
    assert result.exit_code == 0
    assert_golden("doctor-warnings", result.stdout, _REPLACE)
    assert command("doctor", "-q").stdout == ""


@pytest.mark.usefixtures("ailing")
def test_fixing(command: Command) -> None:
    result = command("doctor", "--fix")
    assert result.exit_code == 0
    assert_golden("doctor-fixed", result.stdout, _REPLACE)
    (found,) = json.loads(command("doctor", "--json").stdout)["items"]
    assert (found["code"], found["severity"], found["fixed"]) == ("run_stuck", "warning", False)


def test_looking_changes_nothing(command: Command, ailing: Place) -> None:
    before = ailing.rows()
    assert command("doctor", "--full").exit_code == 0
    assert ailing.rows() == before


@pytest.mark.usefixtures("ailing")
def test_an_error_fails(command: Command, sqlite_url: str, backend: str) -> None:
    with Store.open(sqlite_url) as store, store.begin() as tx:
        session = tx.chat.sessions.create(agent="build", model={})
        tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "?"}])
    Place(sqlite_url).run("DELETE FROM chat_sessions")
    result = command("doctor", "-q", "--url", sqlite_url)
    assert result.exit_code == 1
    assert_golden("doctor-error", result.stdout, _REPLACE)
    assert result.stderr == ""


DAMAGED = {
    "empty": b"",
    "text": b"This is no database, it is a letter. " * 30,
    "truncated": b"SQLite format 3\x00\x10\x00\x02\x02\x00\x40\x20\x20" + bytes(80) + b"\x05" * 900,
}


@each("kind", DAMAGED)
@each("options", [(), ("--fix",), ("--json",), ("--full",)], ids=["plain", "fix", "json", "full"])
def test_a_broken_file_is_one_finding_and_stays_as_it_is(
    kind: str, options: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    path = tmp_path / "broken.db"
    path.write_bytes(DAMAGED[kind])
    result = command("doctor", *options, "--url", f"sqlite:///{path}")
    assert result.exit_code == 1
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    if options == ("--json",):
        (found,) = json.loads(lines[0])["items"]
        assert found["severity"] == "error"
        assert str(path) in found["message"]
    else:
        assert lines[0].startswith("error ")
        assert lines[1:] == ["1 error."]
    assert path.read_bytes() == DAMAGED[kind]


def test_a_file_that_is_not_there(command: Command, tmp_path: Path) -> None:
    result = command("doctor", "--fix", "--url", f"sqlite:///{tmp_path / 'none.db'}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "none.db" in result.stderr
    assert not (tmp_path / "none.db").exists()


def test_an_older_schema_is_a_finding(command: Command, database_url: str) -> None:
    Store.open(database_url).close()
    place = Place(database_url)
    place.run(
        f"UPDATE {place.named('persist_alembic_version')} SET version_num = '0003'",
        f"UPDATE {place.named('_meta')} SET value = '0003' WHERE key = 'schema_version'",
    )
    (found,) = json.loads(command("doctor", "--fix", "--json").stdout)["items"]
    assert (found["code"], found["fixed"]) == ("schema_outdated", False)
    assert "persist upgrade" in found["message"]
    assert place.ask(f"SELECT version_num FROM {place.named('persist_alembic_version')}") == [("0003",)]
    place.run(  # as it was lent
        f"UPDATE {place.named('persist_alembic_version')} SET version_num = '0004'",
        f"UPDATE {place.named('_meta')} SET value = '0004' WHERE key = 'schema_version'",
    )
