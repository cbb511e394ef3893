"""`persist blobs`: what is listed, written out and put in."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import Result

from persist import Store
from persist.testing import FrozenClock
from tests.contract.blobs.test_blobs import body

pytestmark = pytest.mark.one_database

Command = Callable[..., Result]
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
