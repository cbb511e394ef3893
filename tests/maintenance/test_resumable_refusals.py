"""What a resumable copy refuses: the target stays what it was, or the copy can go on once the reason is gone."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from persist import Store
from persist.errors import Conflict, CopyUnfinished, InvalidValue, StoreCorrupt
from persist.maintenance import copy_resumably
from persist.testing import FrozenClock
from tests.maintenance.filled import filled
from tests.maintenance.moving import Pair, checksums, many, new_url, opened
from tests.maintenance.resuming import interrupted, resumed, resumed_checksums, stopping_at
from tests.schema.places import Place


def test_a_target_with_rows_is_refused_and_stays_as_it_is(pair: Pair, clock: FrozenClock) -> None:
    filled(pair[0], clock)
    with opened(*pair) as (source, target):
        with target.begin() as tx:
            tx.workflows.cron_overrides.set("nightly", enabled=False)
        before = Place(pair[1]).rows()
        with pytest.raises(Conflict, match="rows in cron_overrides; it must be empty"):
            copy_resumably(source, pair[1])
    assert Place(pair[1]).rows() == before
    Store.open(pair[1]).close()


def test_the_copy_of_another_source_is_refused(pair: Pair, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    many(pair[0], 9)
    interrupted(pair, stopping_at("messaging_messages"), scopes={"run_id": "run-1"})
    with Store.open(f"sqlite:///{tmp_path / 'another.db'}") as other, pytest.raises(InvalidValue, match="one of ") as error:
        copy_resumably(other, pair[1])
    assert error.value.path == "source"
    with opened(pair[0]) as (source,), pytest.raises(InvalidValue, match="not of 'another'") as error:
        copy_resumably(source, pair[1], scopes={"run_id": "another"})
    assert error.value.path == "run_id"
    resumed(pair)


def test_a_copy_of_itself_and_one_into_memory_are_refused(database_url: str) -> None:
    with opened(database_url) as (source,):
        for target in (database_url, "sqlite:///:memory:"):
            with pytest.raises(InvalidValue) as error:
                copy_resumably(source, target)
            assert error.value.path == "target"
        with pytest.raises(InvalidValue, match="at least 1"):
            copy_resumably(source, database_url, rows=0)
    Store.open(database_url).close()


def test_a_second_process_takes_over(pair: Pair) -> None:
    many(pair[0], 30)
    taken: list[str] = []

    def take_over(table: str, done: int, total: int) -> None:
        if table == "messaging_messages" and not taken:
            taken.append(table)
            with opened(pair[0]) as (again,):
                copy_resumably(again, pair[1], rows=4)

    with opened(pair[0]) as (source,), pytest.raises(Conflict, match="Another process has gone on with this copy"):
        copy_resumably(source, pair[1], rows=4, progress=take_over)
    resumed_checksums(pair)


def test_rows_that_refer_to_nothing_are_refused(sqlite_url: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    Store.open(sqlite_url).close()
    Place(sqlite_url).run(
        'INSERT INTO chat_parts (id, message_id, session_id, "index", type, created_at, updated_at, data_json)'
        " VALUES ('p', 'gone', 's', 0, 'text', 1, 1, '{}')"
    )
    for kind in ("sqlite", "postgres"):
        target = new_url(request, kind, tmp_path, "target.db")
        with opened(sqlite_url) as (source,), pytest.raises(Conflict):
            copy_resumably(source, target)
        with pytest.raises(CopyUnfinished):
            Store.open(target)
    Place(sqlite_url).run("DELETE FROM chat_parts")
    resumed((sqlite_url, target))


def test_what_comes_back_changed_is_no_copy(sqlite_url: str, tmp_path: Path, clock: FrozenClock) -> None:
    filled(sqlite_url, clock)
    target = tmp_path / "target.db"
    Store.open(f"sqlite:///{target}").close()
    with closing(sqlite3.connect(target)) as raw:
        for when in ("INSERT", "UPDATE"):
            raw.execute(
                f"CREATE TRIGGER lie_{when} AFTER {when} ON executions WHEN NEW.skill NOT LIKE '%!' BEGIN"
                " UPDATE executions SET skill = skill || '!' WHERE id = NEW.id; END"
            )
    with opened(sqlite_url) as (source,):
        with pytest.raises(StoreCorrupt, match="executions: the target gives back other values"):
            copy_resumably(source, f"sqlite:///{target}")
        with closing(sqlite3.connect(target)) as raw:
            raw.execute("DROP TRIGGER lie_INSERT")
            raw.execute("DROP TRIGGER lie_UPDATE")
        copy_resumably(source, f"sqlite:///{target}")


def test_a_value_that_cannot_be_stored_is_named(sqlite_url: str, postgres_url: str) -> None:
    many(sqlite_url, 3)
    Place(sqlite_url).run("UPDATE messaging_messages SET timestamp = 'never' WHERE id = 2")
    with opened(sqlite_url) as (source,), pytest.raises(InvalidValue, match="in the row id 2"):
        copy_resumably(source, postgres_url)
    Place(sqlite_url).run("UPDATE messaging_messages SET timestamp = '2026-01-01T00:00:00.000Z' WHERE id = 2")
    resumed((sqlite_url, postgres_url))


def test_rows_of_the_file_itself_get_its_owner(sqlite_url: str, postgres_url: str) -> None:
    Store.open(sqlite_url).close()
    for owner in ("", "aa", "zz"):
        Place(sqlite_url).run(
            *(f"INSERT INTO usage_samples (instance_id, occurred_at) VALUES ('{owner}', {number})" for number in range(5))
        )
    with opened(sqlite_url) as (source,):
        with pytest.raises(InvalidValue, match="does not say whose it is"):
            copy_resumably(source, postgres_url, rows=2)
        report = copy_resumably(source, postgres_url, rows=2, scopes={"instance_id": "mm"})
    with opened(postgres_url) as (target,):
        assert report.tables["usage_samples"] == 15
        assert checksums(target)["usage_samples"] == report.checksums["usage_samples"]
    named = Place(postgres_url).named("usage_samples")
    found = Place(postgres_url).ask(f"SELECT instance_id, count(*) FROM {named} GROUP BY instance_id ORDER BY instance_id")
    assert [tuple(row) for row in found] == [("aa", 5), ("mm", 5), ("zz", 5)]
