"""`persist export`, `import`, `backup`, `checkpoint` and `vacuum`, as an operator types them."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result

from persist import Store
from persist.single_owner_files import create_run_file
from persist.testing import FrozenClock
from tests.cli.conftest import Command
from tests.cli.golden import assert_golden
from tests.maintenance.filled import filled
from tests.maintenance.moving import new_url
from tests.schema.filling import transcript
from tests.schema.places import Place


@pytest.fixture(params=["sqlite", "postgres"])
def target_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_url(request, str(request.param), tmp_path, "target.db")


def ok(result: Result) -> str:
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def failed(result: Result) -> str:
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


def test_there_and_back(command: Command, database_url: str, target_url: str, tmp_path: Path, clock: FrozenClock) -> None:
    filled(database_url, clock)
    file = str(tmp_path / "all.jsonl")
    said = ok(command("export", file)) + ok(command("import", file, "--url", target_url))
    with Store.open(database_url) as source, Store.open(target_url) as target:
        assert transcript(target) == transcript(source)
    said += failed(command("export", file)) + failed(command("import", file, "--url", target_url))
    assert_golden(
        "export", said, {r"FOLDER/all\.jsonl": "<file>", r"The database refuses the write: .*": "<refused>"}, folder=tmp_path
    )
    assert ok(command("export", file, "--force", "-q")) == ""


@pytest.mark.parametrize("beside", ["", "-wal"])
def test_no_command_writes_over_the_database_that_it_reads(
    command: Command, sqlite_url: str, clock: FrozenClock, tmp_path: Path, beside: str
) -> None:
    with Store.open(sqlite_url, clock=clock) as store:
        digest, path = store.blobs.put(b"bytes").sha256, Path(str(store.runtime.dialect.path) + beside)
        before = path.read_bytes()
        (tmp_path / "link").symlink_to(path)
        for file in (str(path), str(tmp_path / "link")):
            for words in (("export", file), ("blobs", "get", digest, file), ("otel", "export", file)):
                assert "the database itself" in failed(command(*words, "--force", "--url", sqlite_url))
        assert path.read_bytes() == before
        assert store.blobs.read(digest) == b"bytes"


def test_one_session_through_a_pipe(command: Command, database_url: str, target_url: str, clock: FrozenClock) -> None:
    filled(database_url, clock)
    result = command("export", "-", "--session", "conv-1", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout_bytes.splitlines()[0])["session_id"] == "conv-1"
    assert result.stderr == "Exported a conversation: 228 rows of 7 tables.\n"
    read = ok(command("import", "-", "--url", target_url, "--json", input=result.stdout_bytes))
    assert json.loads(read)["session_id"] == "conv-1"
    with Store.open(target_url) as store, store.read() as tx:
        assert len(tx.conversations.branches.list("conv-1")) == 3


def test_json(command: Command, database_url: str, target_url: str, tmp_path: Path, clock: FrozenClock) -> None:
    filled(database_url, clock)
    file = str(tmp_path / "all.jsonl")
    written = json.loads(ok(command("export", file, "--json")))
    assert written["kind"] is None
    assert json.loads(ok(command("import", file, "--url", target_url, "--json"))) == {
        "session_id": None,
        "tables": written["tables"],
        "carried": {},
        "left_unknown": {},
        "log_off": None,
    }


def test_what_is_not_there(command: Command, database_url: str, tmp_path: Path) -> None:
    Store.open(database_url).close()
    assert "There is no session or run 'nobody'." in failed(command("export", str(tmp_path / "x"), "--session", "nobody"))
    missing = command("import", str(tmp_path / "gone.jsonl"), "--url", f"sqlite:///{tmp_path / 'new.db'}")
    assert "There is no file" in failed(missing)
    assert "There is no SQLite file" in failed(command("export", "-", "--url", f"sqlite:///{tmp_path / 'gone.db'}"))
    assert [name for name in os.listdir(tmp_path) if not name.startswith("state.db")] == []


def test_whose_the_rows_are(command: Command, sqlite_url: str, postgres_url: str, tmp_path: Path) -> None:
    Store.open(sqlite_url).close()
    Place(sqlite_url).run("INSERT INTO status_log (occurred_at, new_status) VALUES (1, 'idle')")
    file = str(tmp_path / "x.jsonl")
    ok(command("export", file, "--url", sqlite_url))
    assert "--instance-id" in failed(command("import", file, "--url", postgres_url))
    ok(command("import", file, "--url", postgres_url, "--instance-id", "box-1"))


def test_a_file_or_a_database_is_missing_in_the_call(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command("export").exit_code == 2
    monkeypatch.delenv("PERSIST_DATABASE_URL")
    assert command("export", "-").exit_code == 2
    assert command("import", "-").exit_code == 2


def test_attachments_are_named(command: Command, tmp_path: Path) -> None:
    with create_run_file(tmp_path) as store, store.begin() as tx:
        bound = tx.programs.bindings.bind_file(str(store.run_id), "x", __file__)
        url = f"sqlite:///{store.path}"
    said = command("export", str(tmp_path / "one.jsonl"), "--url", url).stdout
    assert said.splitlines()[1] == "Not in it: 1 file that bindings name, beside the database; --json names them."
    told = json.loads(command("export", str(tmp_path / "two.jsonl"), "--url", url, "--json").stdout)
    assert told["files"] == [bound.attachment_path]


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
