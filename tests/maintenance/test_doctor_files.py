"""`maintenance.doctor` on files that are damaged: the first finding says so, and nothing is written."""

import os
import sqlite3
from contextlib import closing

import pytest

from persist import Store
from persist.errors import PersistError, SchemaOutdated, StoreCorrupt
from persist.maintenance import doctor, stats
from persist.testing import FrozenClock
from tests.maintenance.filled import filled, opened
from tests.schema.places import Place

PAGE = 4096


def _root(place: Place, name: str) -> int:
    with closing(sqlite3.connect(place.path)) as raw:
        (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    return int(page)


def _spoil(place: Place, start: int, content: bytes) -> None:
    with place.path.open("r+b") as file:
        file.seek(start)
        file.write(content)


@pytest.mark.parametrize("name", ["messages", "ix_messages_sender", "chat_parts", "workflow_runs"])
def test_a_page_of_noise_is_damage(name: str, sqlite_url: str, clock: FrozenClock) -> None:
    place = filled(sqlite_url, clock)
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


@pytest.mark.parametrize("kept", [1, 99, PAGE, 5 * PAGE + 17])
def test_a_truncated_file_is_refused_or_found(kept: int, sqlite_url: str, clock: FrozenClock) -> None:
    place = filled(sqlite_url, clock)
    with place.path.open("r+b") as file:
        file.truncate(kept)
    try:
        with opened(place, clock, read_only=True) as store:
            found = doctor(store)
    except (StoreCorrupt, SchemaOutdated) as error:  # what is shorter than a head is an empty database to SQLite
        said = str(error)
    else:
        said = str(place.path)
        assert {finding.code for finding in found} == {"corrupt"}
    assert str(place.path) in said


@pytest.mark.parametrize("byte", range(0, 100, 7))
def test_a_flipped_byte_in_the_head_never_shows_an_error_of_the_driver(byte: int, sqlite_url: str, clock: FrozenClock) -> None:
    place = filled(sqlite_url, clock)
    with place.path.open("rb") as file:
        file.seek(byte)
        before = file.read(1)[0]
    _spoil(place, byte, bytes([before ^ 0xFF]))
    try:
        with Store.open(place.url, clock=clock, read_only=True) as store:
            findings = doctor(store)
            assert all(finding.message for finding in findings)
            assert stats(store)["tables"]
    except PersistError as error:
        said = str(error)
    else:
        said = ""
    assert "\n" not in said
