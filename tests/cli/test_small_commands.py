"""`persist blobs`, `persist consumers` and `persist adopt`: what each lists, moves and refuses."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persist import Store
from persist.cli import main
from persist.maintenance import doctor
from persist.schema.metadata import HEAD
from persist.testing import FrozenClock
from tests.adopt.shapes import CONVERSATIONS, FIRST_WORKFLOWS, INSTANCE, PROGRAMS
from tests.cli.conftest import Command
from tests.cli.golden import assert_golden
from tests.contract.blobs.test_blobs import body

pytestmark = pytest.mark.one_database

CONTENT = body(1_234_567)
DIGEST = sha256(CONTENT).hexdigest()


@pytest.fixture
def stored(database_url: str, clock: FrozenClock) -> str:
    with Store.open(database_url, clock=clock) as store:
        store.blobs.put(CONTENT, "application/pdf")
        clock.advance(seconds=1)
        store.blobs.put(b"small", "text/\x1b[31m")
    return database_url


def test_ls(command: Command, stored: str) -> None:
    text = command("blobs", "ls").stdout
    assert "1.2 MB" in text
    assert "5 B" in text
    assert "\x1b" not in text
    assert command("blobs", "ls", "-q").stdout.split()[1] == DIGEST
    assert command("ls", "blobs", "-q").stdout == command("blobs", "ls", "-q").stdout
    assert "1.2 MB" in command("show", DIGEST).stdout
    page = json.loads(command("blobs", "ls", "--json", "--limit", "1").stdout)
    assert [one["size"] for one in page["items"]] == [5]
    assert json.loads(command("blobs", "ls", "--json", "--after", page["cursor"]).stdout)["items"][0]["sha256"] == DIGEST


def test_get(command: Command, stored: str, tmp_path: Path) -> None:
    assert command("blobs", "get", DIGEST).stdout_bytes == CONTENT
    target = tmp_path / "out.pdf"
    assert command("blobs", "get", DIGEST, str(target)).exit_code == 0
    assert target.read_bytes() == CONTENT
    assert target.stat().st_mode & 0o077 == 0
    refused = command("blobs", "get", DIGEST, str(target))
    assert (refused.exit_code, "--force" in refused.stderr) == (1, True)
    assert command("blobs", "get", DIGEST, str(target), "--force").exit_code == 0
    for bad in ("0" * 64, "../etc/passwd"):
        assert command("blobs", "get", bad, str(tmp_path / "none")).exit_code == 1
    assert not (tmp_path / "none").exists()


def test_put(command: Command, stored: str, tmp_path: Path) -> None:
    path = tmp_path / "in.pdf"
    path.write_bytes(CONTENT)
    assert command("blobs", "put", str(path)).stdout == f"{DIGEST}\n"
    said = json.loads(command("blobs", "put", "-", "--type", "image/png", "--json", input=b"new").stdout)
    assert (said["sha256"], said["media_type"]) == (sha256(b"new").hexdigest(), "image/png")
    assert command("blobs", "put", str(tmp_path / "missing")).exit_code == 2


def test_the_place_of_bodies_is_a_setting(
    command: Command, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(database_url):
        pass
    monkeypatch.setenv("PERSIST_BLOBS", str(tmp_path / "bodies"))
    digest = command("blobs", "put", "-", input=b"outside").stdout.strip()
    (path,) = [path for path in (tmp_path / "bodies").rglob("*") if path.is_file() and len(path.name) == 64]
    assert (path.name, path.read_bytes()) == (digest, b"outside")
    assert command("doctor").exit_code == 0
    path.unlink()
    assert digest in command("doctor").stdout
    monkeypatch.delenv("PERSIST_BLOBS")
    refused = command("blobs", "get", digest)
    assert refused.exit_code == 1
    assert "outside of the database" in refused.stderr


def test_databases(command: Command, database_url: str, new_database: Callable[[], str], tmp_path: Path) -> None:
    place = tmp_path / "bodies"
    refused = command("blobs", "databases")
    assert refused.exit_code != 0
    for url in (database_url, new_database()):
        Store.open(url, blobs=place).close()
    shown = command("blobs", "databases", "--json", env={"PERSIST_BLOBS": str(place)})
    entries = json.loads(shown.stdout)
    assert sorted(entry["own"] for entry in entries) == [False, True]
    (other,) = [entry["name"] for entry in entries if not entry["own"]]
    assert other in command("blobs", "databases", env={"PERSIST_BLOBS": str(place)}).stdout
    assert other not in command("blobs", "databases", "--forget", other, env={"PERSIST_BLOBS": str(place)}).stdout
    assert command("blobs", "databases", "--forget", other, env={"PERSIST_BLOBS": str(place)}).exit_code != 0


# `persist consumers`, and what `persist doctor` says of them, on both databases.


@pytest.fixture
def consumed(database_url: str, clock: FrozenClock) -> str:
    """Two consumers of three events; one has acknowledged two, the other waits for none of them."""
    with Store.open(database_url, events=True, clock=clock) as store:
        with store.begin() as tx:
            for number in range(3):
                tx.events.append("audit", "noted", number)
        batch = store.events.consumers.next("outbox", lease=timedelta(minutes=5))
        store.events.consumers.ack("outbox", 2, token=batch.token)
        store.events.consumers.create("mail", at="now", types=["run.failed", "run.completed"])
    return database_url


def test_listing(command: Command, consumed: str) -> None:
    head, *rows = [line.split() for line in command("consumers", "ls").stdout.splitlines()]
    assert head[:3] == ["CONSUMER", "POSITION", "BEHIND"]
    assert [row[:3] for row in rows] == [["mail", "3", "0"], ["outbox", "2", "1"]]
    assert rows[0][-2:] == ["run.completed,", "run.failed"]
    assert command("consumers", "ls", "-q").stdout == "mail\noutbox\n"
    assert command("ls", "consumers").stdout == command("consumers", "ls").stdout
    found = json.loads(command("ls", "consumers", "--json", "--limit", "1").stdout)["items"]
    assert [(one["name"], one["position"], one["types"]) for one in found] == [("mail", 3, ["run.completed", "run.failed"])]
    assert command("ls", "consumers", "--after", "x").exit_code == 2


def test_removing(command: Command, consumed: str) -> None:
    assert command("consumers", "remove", "outbox").stdout == "Removed outbox.\n"
    assert command("consumers", "remove", "outbox").stdout == "There was no consumer outbox.\n"
    assert command("consumers", "remove", "mail", "-q").stdout == ""
    assert "No consumers." in command("consumers", "ls").output


def test_doctor_names_who_fell_behind(consumed: str, clock: FrozenClock) -> None:
    def found() -> list[tuple[str, str]]:
        with Store.open(consumed, clock=clock) as store:
            return [(finding.code, finding.subject) for finding in doctor(store) if finding.code.startswith("consumer")]

    clock.advance(delta=timedelta(days=7))
    assert found() == []
    clock.advance(seconds=1)
    assert found() == [("consumer_behind", "consumer outbox")]


Adopt = Callable[..., Result]

ROWS = """
INSERT INTO messaging_sessions VALUES ('s1', 'p', 'c', NULL, 'u', '2025-01-01T00:00:00.000Z', '2025-01-01T00:00:00Z', 0, 1, 'x'),
    ('s2', 'p', 'c', NULL, 'u', '2025-01-01T00:00:00.000Z', '2025-01-02T00:00:00Z', 0, 1, 'x');
INSERT INTO progressions VALUES ('p', 1.0, '["a", "b"]');
INSERT INTO run (id) VALUES ('20260116-143052-a7b3c9');
"""
SAME = {r"\d{8}T\d{6}Z": "INSTANT", rf"revision {HEAD}": "revision HEAD"}


@pytest.fixture
def adopt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Adopt:
    """`adopt("file.db", …)` in a folder where file.db is one of several systems at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERSIST_DATABASE_URL", raising=False)
    with closing(sqlite3.connect("file.db")) as raw:
        raw.executescript(FIRST_WORKFLOWS + CONVERSATIONS + INSTANCE + PROGRAMS + ROWS)
    return lambda *args, **options: CliRunner().invoke(main, ["adopt", *args], **options)


def test_what_is_printed(adopt: Adopt) -> None:
    result = adopt("file.db")
    assert result.exit_code == 0, result.stderr
    assert_golden("adopt", result.stdout, SAME)
    with Store.open("sqlite:///file.db") as store, store.read() as tx:
        assert tx.conversations.progressions.get("p") == ["a", "b"]


def test_a_dry_run_prints_the_same_and_changes_nothing(adopt: Adopt) -> None:
    before = Path("file.db").read_bytes()
    result = adopt("file.db", "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert_golden("adopt_dry_run", result.stdout, SAME)
    assert Path("file.db").read_bytes() == before
    assert [path.name for path in Path().iterdir()] == ["file.db"]


def test_names_of_another_program_are_printed_escaped(adopt: Adopt) -> None:
    with closing(sqlite3.connect("file.db")) as raw:
        raw.execute('ALTER TABLE messaging_sessions ADD COLUMN "e\x1b[31m\nx" DEFAULT 1')
    printed = adopt("file.db", "--dry-run").stdout
    assert "messaging_sessions.e\\x1b[31m\\nx, 2 rows" in printed
    assert "\x1b" not in printed


def test_the_second_time_there_is_nothing_to_do(adopt: Adopt) -> None:
    adopt("file.db", "--no-backup")
    result = adopt("--url", "sqlite:///file.db")
    assert (result.exit_code, result.stdout) == (
        0,
        f"file.db needs no adopting: persist made or adopted it before. It is at {HEAD}.\n",
    )
    assert adopt("file.db", "-q").stdout == ""


def test_json_for_scripts(adopt: Adopt) -> None:
    told = json.loads(adopt("file.db", "--json").stdout)
    assert told["adopted"]
    assert told["moved"] == 2
    assert told["run_id"] == "20260116-143052-a7b3c9"
    assert told["rebuilt"] == ["messaging_sessions"]
    assert Path(told["backup_path"]).exists()
    assert {"table": "messaging_sessions", "rule": told["settled"][0]["rule"], "count": 1} in told["settled"]
    assert told["notices"][0]["subject"] == "messaging_sessions.last_activity_at"


def test_quiet_prints_the_backup_alone(adopt: Adopt) -> None:
    result = adopt("file.db", "--quiet")
    assert Path(result.stdout.strip()).exists()
    assert len(result.stdout.splitlines()) == 1


def test_the_environment_names_the_file(adopt: Adopt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSIST_DATABASE_URL", "sqlite:///file.db")
    assert adopt("-q").exit_code == 0
    assert "needs no adopting" in adopt().stdout


FAILURES = {
    "missing": (["nobody.db"], 1, "Error: There is no SQLite file 'nobody.db'."),
    "text": (["text.db"], 1, "Error: text.db: file is not a database"),
    "empty": (["empty.db"], 1, "Error: url: none of the tables in empty.db is one that persist knows; nothing was changed."),
    "stranger": (
        ["stranger.db"],
        1,
        "Error: Tables of these names are not the ones that persist knows: tasks has no id; nothing was changed.",
    ),
    "server": (
        ["--url", "postgresql://me:secret@nowhere.invalid/x"],
        1,
        "Error: postgresql: only files are adopted; adopt the SQLite file, then copy it here.",
    ),
    "nothing": ([], 2, "Error: Which file? Name it, give --url FILE, or set PERSIST_DATABASE_URL."),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_one_line(adopt: Adopt, name: str) -> None:
    Path("text.db").write_text("hello")
    Path("empty.db").touch()
    with closing(sqlite3.connect("stranger.db")) as raw:
        raw.execute("CREATE TABLE tasks (number INTEGER PRIMARY KEY)")
    args, code, line = FAILURES[name]
    result = adopt(*args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.splitlines()[-1] == line
    assert "secret" not in result.stderr
    assert "Traceback" not in result.stderr
