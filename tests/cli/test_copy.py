"""`persist copy`, as an operator types it."""

import json
import os
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from persist import Store
from persist.maintenance import copy_resumably
from persist.testing import FrozenClock
from tests.cli.conftest import Command
from tests.cli.golden import assert_golden
from tests.cli.test_export import failed
from tests.maintenance.moving import new_url
from tests.schema.filling import transcript
from tests.schema.places import Place

TABLES = {r"\b[0-9a-f]{32}\b": "<checksum>"}


@pytest.fixture(params=["sqlite", "postgres"])
def target_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_url(request, str(request.param), tmp_path, "target.db")


def small(url: str, clock: FrozenClock) -> None:
    with Store.open(url, clock=clock) as store, store.begin() as tx:
        tx.workflows.cron_overrides.set("nightly", enabled=False)
        session = tx.messaging.sessions.get_or_create(platform="slack", channel_id="C", user_id="U")
        for text in ("Hello?", "Since noon."):
            tx.messaging.messages.add(session.id, role="user", content=text)


def test_a_copy_says_what_it_copied(command: Command, database_url: str, target_url: str, clock: FrozenClock) -> None:
    small(database_url, clock)
    result = command("copy", database_url, target_url)
    assert (result.exit_code, result.stderr) == (0, "")
    assert_golden("copy", result.stdout, TABLES)
    with Store.open(database_url) as source, Store.open(target_url) as target:
        assert transcript(target) == transcript(source)


def test_json(command: Command, database_url: str, target_url: str, clock: FrozenClock) -> None:
    small(database_url, clock)
    found = json.loads(command("copy", database_url, target_url, "--json").stdout)
    assert found["left_out"] == []
    assert found["tables"]["messaging_messages"]["rows"] == 2
    assert re.fullmatch("[0-9a-f]{32}", found["tables"]["messaging_messages"]["checksum"])


def test_quiet(command: Command, database_url: str, target_url: str, clock: FrozenClock) -> None:
    small(database_url, clock)
    result = command("copy", database_url, target_url, "-q")
    assert (result.exit_code, result.output) == (0, "")


def test_an_empty_database(command: Command, database_url: str, target_url: str) -> None:
    Store.open(database_url).close()
    assert_golden("copy_empty", command("copy", database_url, target_url).stdout, TABLES)


def test_a_target_without_tables(command: Command, sqlite_url: str, empty_postgres_url: str, clock: FrozenClock) -> None:
    small(sqlite_url, clock)
    assert command("copy", sqlite_url, empty_postgres_url).exit_code == 0
    with Store.open(empty_postgres_url) as target, target.read() as tx:
        assert [one.name for one in tx.workflows.cron_overrides.all()] == ["nightly"]


def test_a_target_of_a_schema_of_its_own(command: Command, sqlite_url: str, postgres_url: str, clock: FrozenClock) -> None:
    small(sqlite_url, clock)
    assert command("copy", sqlite_url, postgres_url, "--target-schema", "other").exit_code == 0
    assert Place(postgres_url, "other").ask("SELECT count(*) FROM other.messaging_messages") == [(2,)]
    last = f"{sqlite_url}.back"
    assert command("copy", postgres_url, last, "--source-schema", "other").exit_code == 0
    assert Place(last).ask("SELECT count(*) FROM messaging_messages") == [(2,)]


def test_a_target_with_rows(command: Command, database_url: str, target_url: str, clock: FrozenClock) -> None:
    small(database_url, clock)
    assert command("copy", database_url, target_url).exit_code == 0
    assert_golden("copy_twice", failed(command("copy", database_url, target_url)))


def test_a_source_that_is_not_there(command: Command, tmp_path: Path) -> None:
    result = command("copy", f"sqlite:///{tmp_path / 'gone.db'}", f"sqlite:///{tmp_path / 'target.db'}")
    assert "gone.db" in failed(result)
    assert os.listdir(tmp_path) == []


def test_an_outdated_target_is_not_touched(command: Command, sqlite_url: str, tmp_path: Path, clock: FrozenClock) -> None:
    small(sqlite_url, clock)
    old = tmp_path / "old.db"
    old.write_bytes((Path(__file__).parents[1] / "schema" / "databases" / "0001.db").read_bytes())
    before = old.read_bytes()
    assert "persist upgrade" in failed(command("copy", sqlite_url, f"sqlite:///{old}"))
    assert old.read_bytes() == before


def test_a_target_with_tables_of_others(command: Command, sqlite_url: str, tmp_path: Path, clock: FrozenClock) -> None:
    small(sqlite_url, clock)
    other = Place(f"sqlite:///{tmp_path / 'other.db'}")
    other.run("CREATE TABLE messages (id INTEGER)")
    assert "without a persist schema version (messages)" in failed(command("copy", sqlite_url, other.url))


def test_whose_the_rows_are(command: Command, sqlite_url: str, postgres_url: str) -> None:
    Store.open(sqlite_url).close()
    Place(sqlite_url).run("INSERT INTO status_log (occurred_at, new_status) VALUES (1, 'idle')", "CREATE TABLE mine (x)")
    assert_golden("copy_scope", failed(command("copy", sqlite_url, postgres_url)))
    result = command("copy", sqlite_url, postgres_url, "--instance-id", "box-1")
    assert "Not copied, because they are not persist's: mine." in result.stdout
    with Store.open(postgres_url) as target, target.read() as tx:
        assert len(tx.telemetry.status.history(instance_id="box-1")) == 1


def test_a_resumable_copy_goes_on(command: Command, database_url: str, target_url: str, clock: FrozenClock) -> None:
    small(database_url, clock)

    def interrupt(table: str, done: int, total: int) -> None:
        if table == "messaging_messages":
            raise KeyboardInterrupt

    with Store.open(database_url) as source, pytest.raises(KeyboardInterrupt):
        copy_resumably(source, target_url, progress=interrupt)
    refused = failed(command("ls", "--url", target_url))
    words = shlex.split(refused.partition("run persist ")[2].partition(" to continue it")[0])
    assert words[:2] == ["copy", "--resumable"]
    assert failed(command("copy", database_url, target_url)).startswith("Error: A copy into this database is under way; run ")
    assert failed(command("upgrade", "--url", target_url)).startswith("Error: A copy into this database is under way; run ")
    result = command(*words)  # as the message says
    assert result.exit_code == 0
    assert_golden("copy", result.stdout, TABLES)
    assert command("doctor", "--url", target_url).exit_code == 0


@pytest.fixture
def mixed(sqlite_url: str, clock: FrozenClock) -> str:
    """A file with values that no column of a server takes together, beside a column and a table that one takes."""
    small(sqlite_url, clock)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as raw, raw:
        raw.execute("ALTER TABLE messaging_messages ADD COLUMN mixed")
        raw.execute("ALTER TABLE messaging_messages ADD COLUMN colour TEXT")
        raw.execute("UPDATE messaging_messages SET colour = 'red', mixed = CASE rowid WHEN 1 THEN 1 ELSE 'two' END")
        raw.execute("CREATE TABLE x_notes (note TEXT)")
        raw.execute("INSERT INTO x_notes VALUES ('mine')")
    return sqlite_url


@pytest.mark.parametrize("way", [(), ("--resumable",)], ids=["at once", "resumable"])
def test_what_a_target_cannot_take_is_refused_and_left_with_all_of_it_on_request(
    command: Command, mixed: str, postgres_url: str, way: tuple[str, ...]
) -> None:
    refused = command("copy", *way, mixed, postgres_url)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        "Error: source: the target cannot take what persist does not know: 'messaging_messages.mixed' (2 values)."
        " leave_unknown=True (--leave-unknown) leaves it. Nothing was written.\n"
    )
    left = command("copy", *way, "--leave-unknown", mixed, postgres_url)
    assert left.exit_code == 0
    assert left.stdout.splitlines()[-2] == (
        "Left, as asked: messaging_messages.colour (2), messaging_messages.mixed (2), x_notes (1)."
    )
    assert "what was copied was read back and is the same" in left.stdout
    assert "both databases hold the same" not in left.stdout


def test_an_export_carries_it_and_an_import_makes_it(command: Command, mixed: str, tmp_path: Path, postgres_url: str) -> None:
    out, new = str(tmp_path / "all.jsonl"), f"sqlite:///{(tmp_path / 'new.db').as_posix()}"
    carried = (
        "with them, though persist does not know it: messaging_messages.colour (2), messaging_messages.mixed (2), x_notes (1)."
    )
    assert command("export", out, "--url", mixed).stdout.splitlines()[1] == f"Exported {carried}"
    assert command("import", out, "--url", new).stdout.splitlines()[1] == f"Imported {carried}"
    refused = command("import", out, "--url", postgres_url)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        "Error: source: the target cannot take what persist does not know: 'messaging_messages.mixed' (2 values)."
        " leave_unknown=True (--leave-unknown) leaves it. Nothing was written.\n"
    )
    left = command("import", out, "--url", postgres_url, "--leave-unknown")
    assert left.stdout.splitlines()[1].startswith("Left, as asked: messaging_messages.colour (2)")


def test_an_export_leaves_it_on_request(command: Command, mixed: str, tmp_path: Path) -> None:
    out = str(tmp_path / "all.jsonl")
    said = command("export", out, "--url", mixed, "--leave-unknown")
    assert said.stdout.splitlines()[1].startswith("Left, as asked: messaging_messages.colour (2)")
    found = command("import", out, "--json", "--url", f"sqlite:///{(tmp_path / 'new.db').as_posix()}")
    assert (json.loads(found.stdout)["carried"], json.loads(found.stdout)["left_unknown"]) == ({}, {})
