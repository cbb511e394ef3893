"""Columns and tables that persist does not know: copies carry them, the doctor and adoption count them."""

import io
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from persist import InvalidValue, Store, upgrade
from persist.cli.moving import as_said, same
from persist.maintenance import adopt, copy, copy_resumably, doctor, export
from persist.testing import FrozenClock
from tests.maintenance.filled import filled
from tests.maintenance.moving import Pair, opened
from tests.schema.places import Place

ODD = 'a "quoted" %s name; DROP TABLE chat_sessions; --'
CARRIED = {f"chat_sessions.{ODD}": 1, "chat_sessions.cost": 1, "chat_sessions.raw": 1, "x_notes": 2}
_ON_SERVER = ODD.replace('"', '""').replace("%", "%%")


def _url(path: Path) -> str:
    return f"sqlite:///{path.as_posix()}"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A store whose sessions have columns of a host's, beside a table x_notes and a table that is the host's own."""
    path = tmp_path / "source.db"
    with Store.open(_url(path)) as store:
        for agent in ("build", "plan"):
            store.chat.sessions.create(agent=agent, model={})
    with closing(sqlite3.connect(path)) as raw, raw:
        name = ODD.replace('"', '""')
        for column in (f'"{name}" VARCHAR(20)', "cost REAL", "raw BLOB", "empty TEXT"):
            raw.execute(f"ALTER TABLE chat_sessions ADD COLUMN {column}")
        raw.execute(f"""UPDATE chat_sessions SET "{name}" = 'ä', cost = 0.5, raw = x'00ff' WHERE agent = 'build'""")
        raw.execute('CREATE TABLE x_notes (number INTEGER PRIMARY KEY, "the text" TEXT)')
        raw.execute("INSERT INTO x_notes VALUES (7, 'seven'), (8, NULL)")
        raw.execute("CREATE TABLE invoices (id TEXT)")
    return path


def _in_file(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as raw:
        name = ODD.replace('"', '""')
        return [
            raw.execute(f'SELECT "{name}", cost, raw FROM chat_sessions ORDER BY agent').fetchall(),
            raw.execute('SELECT number, "the text" FROM x_notes ORDER BY 1').fetchall(),
        ]


VALUES = [[("ä", 0.5, b"\x00\xff"), (None, None, None)], [(7, "seven"), (8, None)]]


def test_a_copy_carries_them_to_a_server_and_back(source: Path, tmp_path: Path, postgres_url: str) -> None:
    with Store.open(_url(source)) as file, Store.open(postgres_url) as server:
        report = copy(file, server)
        assert (report.carried, report.left_unknown, report.left_out) == (CARRIED, {}, ("invoices",))
        with psycopg.connect(postgres_url) as raw:
            columns = f'SELECT "{_ON_SERVER}", cost, raw FROM persist.chat_sessions ORDER BY agent'
            assert raw.execute(columns.encode(), ()).fetchall() == VALUES[0]
            assert raw.execute('SELECT number, "the text" FROM persist.x_notes ORDER BY 1').fetchall() == VALUES[1]
        with Store.open(_url(tmp_path / "back.db")) as back:
            assert copy(server, back).carried == CARRIED
    assert _in_file(tmp_path / "back.db") == VALUES


def test_a_file_is_copied_at_once_and_resumably(source: Path, tmp_path: Path) -> None:
    with Store.open(_url(source)) as file:
        with Store.open(_url(tmp_path / "copy.db")) as target:
            assert copy(file, target).carried == CARRIED
        assert copy_resumably(file, _url(tmp_path / "again.db")).carried == CARRIED
    assert _in_file(tmp_path / "copy.db") == _in_file(tmp_path / "again.db") == VALUES


def test_tables_with_row_guards_are_copied_at_once_and_resumably(pair: Pair, clock: FrozenClock) -> None:
    filled(pair[0], clock)
    place, there = Place(pair[0]), Place(pair[1])
    names = ("bindings", "execution", "agents", "run", "workflow_runs", "progressions", "event_heads")
    place.run(
        *(f"ALTER TABLE {place.named(name)} ADD COLUMN note TEXT" for name in names),
        *(f"UPDATE {place.named(name)} SET note = 'mine'" for name in names),
    )
    with opened(pair[0]) as (source,):
        carried = copy_resumably(source, pair[1], scopes={}).carried
    assert carried.keys() == {f"{name}.note" for name in names}
    for name, count in carried.items():
        table = name.removesuffix(".note")
        assert there.ask(f"SELECT count(*) FROM {there.named(table)} WHERE note = 'mine'") == [(count,)]


def test_what_a_database_computes_is_named_and_nothing_is_said_to_be_the_same(pair: Pair, clock: FrozenClock) -> None:
    filled(pair[0], clock)
    for place in map(Place, pair):
        kind = "STORED" if place.is_postgres else "VIRTUAL"
        with opened(place.url):
            named = place.named("chat_sessions")
        place.run(f"ALTER TABLE {named} ADD COLUMN twice TEXT GENERATED ALWAYS AS (agent || agent) {kind}")
    with opened(*pair) as (source, target):
        whole, part = (
            export(source, io.BytesIO()),
            export(source, io.BytesIO(), session_id=source.chat.sessions.list().items[0].id),
        )
        assert whole.computed == part.computed == ("chat_sessions.twice",)
        report = copy(source, target, scopes={})
        assert target.chat.sessions.list().items
    assert as_said(report)["computed"] == ["chat_sessions.twice"]
    assert same(report, "all is the same") != "all is the same" == same(replace(report, computed=()), "all is the same")
    assert place.ask(f"SELECT count(*) FROM {named} WHERE twice IS NULL OR twice <> agent || agent") == [(0,)]


def test_a_server_is_copied_to_a_server_with_its_own_types(source: Path, postgres_url: str) -> None:
    with Store.open(postgres_url) as server:
        session = server.chat.sessions.create(agent="build", model={})
        with psycopg.connect(postgres_url, autocommit=True) as raw:
            raw.execute("ALTER TABLE persist.chat_sessions ADD COLUMN seen timestamptz, ADD COLUMN tags text[]")
            raw.execute("UPDATE persist.chat_sessions SET seen = '2026-01-02 03:04:05.678901+00', tags = '{a,b}'")
        upgrade(postgres_url, schema="other")
        with Store.open(postgres_url, schema="other") as other:
            assert copy(server, other).carried == {"chat_sessions.seen": 1, "chat_sessions.tags": 1}
        with psycopg.connect(postgres_url) as raw:
            query = "SELECT id, seen, tags FROM {}.chat_sessions"
            assert raw.execute(query.format("other")).fetchall() == raw.execute(query.format("persist")).fetchall()
            assert raw.execute(query.format("other")).fetchall()[0][0] == session.id


def test_what_a_target_cannot_take_is_refused_by_name_and_left_on_request(
    source: Path, tmp_path: Path, postgres_url: str
) -> None:
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute("ALTER TABLE chat_sessions ADD COLUMN mixed")
        raw.execute("UPDATE chat_sessions SET mixed = CASE agent WHEN 'build' THEN 1 ELSE 'two' END")
    with Store.open(_url(source)) as file, Store.open(postgres_url) as server:
        ways: list[Callable[[], object]] = [lambda: copy(file, server), lambda: copy_resumably(file, postgres_url)]
        for way in ways:
            with pytest.raises(InvalidValue, match=r"chat_sessions\.mixed' \(2 values\).*--leave-unknown"):
                way()
        report = copy(file, server, leave_unknown=True)
        assert report.left_unknown == {**CARRIED, "chat_sessions.mixed": 2}
        assert (report.carried, report.left_out) == ({}, ("invoices", "x_notes"))
        with Store.open(_url(tmp_path / "copy.db")) as target:
            assert copy(file, target).carried["chat_sessions.mixed"] == 2


def test_the_doctor_says_how_many_values_they_hold(source: Path) -> None:
    with Store.open(_url(source)) as file:
        said = {finding.subject: finding.message for finding in doctor(file) if finding.code == "column_unknown"}
    assert said["column chat_sessions.cost"].endswith("It holds 1 value.")
    assert said["column chat_sessions.empty"].endswith("It holds 0 values.")
    assert said[f"column chat_sessions.{ODD}"].endswith("It holds 1 value.")


def test_adopting_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "tags.db"
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(
            "CREATE TABLE agent_tags (kind TEXT NOT NULL, value TEXT NOT NULL, first_seen INTEGER NOT NULL,"
            " last_seen INTEGER NOT NULL, colour TEXT, PRIMARY KEY (kind, value))"
        )
        raw.execute("INSERT INTO agent_tags VALUES ('repo', 'o/r', 1, 1, 'red'), ('repo', 'o/s', 1, 1, NULL)")
        raw.execute("CREATE TABLE plays (id TEXT)")
        raw.execute("INSERT INTO plays VALUES ('one'), ('two')")
    found = {notice.subject: notice.count for notice in adopt(_url(path)).notices if "does not know" in notice.message}
    assert found == {"agent_tags.colour": 1, "plays": 2}
