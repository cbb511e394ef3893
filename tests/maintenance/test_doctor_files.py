"""`maintenance.doctor` on files that are damaged: the first finding says so, and nothing is written."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from persist import Store
from persist.errors import PersistError, SchemaOutdated, StoreCorrupt
from persist.maintenance import adopt, doctor, stats
from persist.programs import create_run_file
from persist.schema.metadata import REVISIONS
from persist.single_owner_files import open_file
from persist.testing import FrozenClock
from tests.adopt import shapes
from tests.cases import each
from tests.maintenance.filled import codes, filled, opened
from tests.schema.places import ROOT, Place

PAGE = 4096


def _root(place: Place, name: str) -> int:
    with closing(sqlite3.connect(place.path)) as raw:
        (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    return int(page)


def _spoil(place: Place, start: int, content: bytes) -> None:
    with place.path.open("r+b") as file:
        file.seek(start)
        file.write(content)


def test_a_page_of_noise_is_damage(sqlite_url: str, clock: FrozenClock) -> None:
    good = filled(sqlite_url, clock).path.read_bytes()
    for name in ("messages", "ix_messages_sender", "chat_parts", "workflow_runs"):
        place = Place(sqlite_url)
        place.path.write_bytes(good)
        _spoil(place, (_root(place, name) - 1) * PAGE, bytes(range(256)) * 16)
        before = place.path.read_bytes()
        with opened(place, clock, read_only=True) as store:
            found = doctor(store)
        assert {(finding.code, finding.severity) for finding in found} == {("corrupt", "error")}
        assert all("\n" not in finding.message for finding in found)
        assert place.path.read_bytes() == before


def test_an_index_that_does_not_fit_its_table_is_only_seen_in_full(sqlite_url: str, clock: FrozenClock) -> None:
    """Two indexes over columns of one type, with each other's pages."""
    place = filled(sqlite_url, clock)
    one, other = _root(place, "ix_messages_sender"), _root(place, "ix_messages_recipient")
    place.run(
        "UPDATE messages SET sender = id, recipient = 'nobody'",
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET rootpage = {other} WHERE name = 'ix_messages_sender'",
        f"UPDATE sqlite_master SET rootpage = {one} WHERE name = 'ix_messages_recipient'",
    )
    with opened(place, clock, read_only=True) as store:
        assert doctor(store) == []
        found = doctor(store, full=True)
    assert {finding.code for finding in found} == {"corrupt"}
    assert any("ix_messages_sender" in finding.message for finding in found)


def test_a_damaged_file_is_not_written_to(sqlite_url: str, clock: FrozenClock) -> None:
    place = filled(sqlite_url, clock)
    place.run("DROP INDEX ix_messages_recipient")
    with opened(place, clock) as store:
        _spoil(place, (_root(place, "workflow_runs") - 1) * PAGE, os.urandom(PAGE))
        before = place.path.read_bytes()
        found = doctor(store, fix=True)
        assert {(finding.code, finding.fixed) for finding in found} == {("corrupt", False)}
        assert place.path.read_bytes() == before


@each("kept", [1, 99, PAGE, 5 * PAGE + 17])
def test_a_truncated_file_is_refused_or_found(tmp_path: Path, clock: FrozenClock, kept: int) -> None:
    place = filled(f"sqlite:///{tmp_path / f'{kept}.db'}", clock)
    with place.path.open("r+b") as file:
        file.truncate(kept)
    try:
        with opened(place, clock, read_only=True) as store:
            assert {finding.code for finding in doctor(store)} == {"corrupt"}
            said = str(place.path)
    except (StoreCorrupt, SchemaOutdated) as error:  # what is shorter than a head is an empty database to SQLite
        said = str(error)
    assert str(place.path) in said


def test_a_flipped_byte_in_the_head_never_shows_an_error_of_the_driver(sqlite_url: str, clock: FrozenClock) -> None:
    place = filled(sqlite_url, clock)
    good = place.path.read_bytes()
    for byte in range(0, 100, 7):
        place.path.write_bytes(good)
        _spoil(place, byte, bytes([good[byte] ^ 0xFF]))
        said = ""
        try:
            with Store.open(place.url, clock=clock, read_only=True) as store:
                assert all(finding.message for finding in doctor(store))
                assert stats(store)["tables"]
        except PersistError as error:
            said = str(error)
        assert "\n" not in said, byte


# `maintenance.doctor` on what is around the rows, and on files that other revisions and other programs made.


KEPT = ROOT / "tests" / "schema" / "databases"


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_file_of_every_released_revision_has_no_drift_when_it_was_upgraded(revision: str, tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    shutil.copy(KEPT / f"{revision}.db", path)
    with Store.open(f"sqlite:///{path}") as store:
        found = {finding.code for finding in doctor(store, full=True)}
    # they were filled long ago, with a turn and a run that nobody ended, and a gate that nobody closed
    old = {"run_stuck", "turn_dead", "session_stale", "tool_call_orphaned", "schedule_overdue", "approval_overdue"}
    assert found <= {*old, "progressions_lagging"}


@each("script", ["CHAT", "CONVERSATIONS", "FIRST_WORKFLOWS", "INSTANCE", "PROGRAMS", "WORKFLOWS"])
def test_a_file_that_was_adopted_has_nothing_to_worry_about(script: str, tmp_path: Path) -> None:
    path = tmp_path / f"{script}.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(getattr(shapes, script))
    adopt(f"sqlite:///{path}")
    with Store.open(f"sqlite:///{path}") as store:
        assert {finding.severity for finding in doctor(store, full=True)} == {"info"}


def test_a_log_that_has_grown_large(sqlite_url: str, clock: FrozenClock) -> None:
    with Store.open(sqlite_url, clock=clock) as store:
        store.chat.prompts.put("x")
        assert store.path is not None
        log = store.path.with_name(store.path.name + "-wal")
        os.truncate(log, 65 * 2**20)  # frames of zeros end the log, whatever its size
        (found,) = doctor(store)
    assert (found.code, found.severity, found.subject) == ("wal_large", "warning", str(log))
    assert "65 MiB" in found.message


def test_a_network_file_system(sqlite_url: str, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    place = filled(sqlite_url, clock)
    monkeypatch.setattr("persist.db.dialects.sqlite.operations.network_of", lambda path: "nfs4")
    with opened(place, clock) as store:
        (found,) = doctor(store)
    assert (found.code, found.severity, found.subject) == ("network", "warning", str(place.path))
    assert "nfs4" in found.message


def test_what_a_raw_writer_left_in_a_run(tmp_path: Path, clock: FrozenClock) -> None:
    with create_run_file(tmp_path, clock=clock) as store:
        assert store.run_id is not None
        path = store.path
        assert path is not None
        with store.begin() as tx:
            first = tx.programs.executions.begin(store.run_id, statement_index=1, statement_text="one")
            tx.programs.bindings.bind(store.run_id, "goal", "small")
    Place(f"sqlite:///{path}").run(
        f"UPDATE execution SET parent_id = {first.id} WHERE id = {first.id}",
        "DROP TRIGGER persist_row_guard_bindings_update",
        "UPDATE bindings SET attachment_path = '../../../elsewhere.txt', value = NULL",
        "INSERT INTO bindings (name, execution_id, kind, value) VALUES ('lost', 77, 'let', 'x')",
    )
    with open_file(path, clock=clock, read_only=True) as store:
        found = {(finding.code, finding.severity) for finding in doctor(store)}
    assert found == {
        ("program_attachment_escapes", "error"),
        ("program_circle", "warning"),
        ("program_guard_missing", "warning"),
        ("program_orphan", "warning"),
        ("program_raw_write", "info"),
    }


def test_what_cannot_be_looked_at_is_said(own_database_url: str, clock: FrozenClock) -> None:
    place = filled(own_database_url, clock)
    place.run(f"DROP TABLE {place.named('progression_members')}")
    with opened(place, clock) as store:
        found = doctor(store, fix=True)
    assert [(finding.code, finding.severity) for finding in found] == [("table_missing", "error"), ("unreadable", "error")]
    assert found[1].subject == "conversations"
    assert codes(found) == ["table_missing", "unreadable"]
