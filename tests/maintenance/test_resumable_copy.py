"""Resumable copies: bounded transactions, a target that nobody opens meanwhile, and in the end what one snapshot held."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.errors import Conflict, CopyUnfinished, InvalidValue
from persist.maintenance import copy, copy_resumably
from persist.schema import migrate
from persist.single_owner_files import create_run_file
from persist.testing import FrozenClock
from tests.maintenance.filled import filled
from tests.maintenance.moving import Pair, checksums, many, opened
from tests.maintenance.resuming import StoppedError, interrupted, resumed, resumed_checksums, stopping_at
from tests.schema.places import Place


@pytest.mark.one_database
def test_nobody_opens_the_target_meanwhile(pair: Pair, clock: FrozenClock) -> None:
    filled(pair[0], clock)
    interrupted(pair, stopping_at("chat_parts"))
    expected = "persist copy --resumable "
    for read_only in (False, True):
        with pytest.raises(CopyUnfinished, match="A copy into this database is under way; run persist copy") as error:
            Store.open(pair[1], read_only=read_only)
        assert error.value.command.startswith(expected)
    for question in (migrate.check, migrate.upgrade):
        with pytest.raises(CopyUnfinished):
            question(pair[1])
    assert migrate.current(pair[1]) is not None
    with Store.open(pair[0]) as source, opened(pair[0]) as (again,):
        with pytest.raises(CopyUnfinished), Store.open(pair[1]) as target:
            copy(source, target)
        copy_resumably(again, pair[1])
    Store.open(pair[1]).close()


@pytest.mark.one_database
def test_it_does_not_read_again_what_it_has_copied(pair: Pair, clock: FrozenClock) -> None:
    many(pair[0], 40)

    def stop(table: str, done: int, total: int) -> None:
        if table == "messaging_messages" and done >= 24:
            raise StoppedError

    seen: list[int] = []
    interrupted(pair, stop, rows=8)
    with Store.open(pair[0]) as source:
        copy_resumably(
            source, pair[1], rows=8, progress=lambda table, done, _: seen.append(done) if table == "messaging_messages" else None
        )
    assert seen == sorted(seen)
    assert seen[0] > 24
    assert seen[-1] >= 80  # with the rows of tables that came before


def _triggers(place: Place) -> list[tuple[Any, ...]]:
    if place.is_postgres:
        return place.ask("SELECT tgname, tgenabled FROM pg_trigger WHERE NOT tgisinternal ORDER BY tgname")
    return place.ask("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name")


def test_rows_that_guards_refuse_are_copied_and_the_target_is_guarded(pair: Pair) -> None:
    """An adopted file may hold such rows."""
    source, target = map(Place, pair)
    for place in (source, target):
        Store.open(place.url, migrate=True).close()
    lifted = ["SET session_replication_role = replica"]
    if not source.is_postgres:
        lifted = [f"DROP TRIGGER {name}" for name, _ in _triggers(source)]
    before, run = _triggers(target), "20260116-143052-a7b3c9"
    source.run(
        *lifted,
        f"INSERT INTO {source.named('run')} (id) VALUES ('{run}')",
        f"INSERT INTO {source.named('bindings')} (run_id, name, kind, attachment_path) VALUES ('{run}', 'n', 'let', '../x')",
    )
    resumed(pair)
    assert target.ask(f"SELECT attachment_path FROM {target.named('bindings')}") == [("../x",)]
    assert _triggers(target) == before
    assert before


def test_the_copy_of_a_strict_file_is_strict(tmp_path: Path, postgres_url: str) -> None:
    with create_run_file(tmp_path, strict=True) as source:
        copied = Place(f"sqlite:///{(tmp_path / 'copy.db').as_posix()}")
        for place in (copied, Place(postgres_url)):
            copy_resumably(source, place.url)
        assert _triggers(copied) == _triggers(Place(f"sqlite:///{source.path}"))
    with pytest.raises(sqlite3.IntegrityError, match="this run is strict"):
        copied.run("UPDATE run SET status = 'failed'")
    assert Place(postgres_url).ask("SELECT key FROM persist._meta WHERE key = 'strict'") == []


def change_everything(place: Place) -> None:
    """Rows of the source are added, changed and deleted, as its users do it."""
    with Store.open(place.url) as store, store.begin() as tx:
        session = tx.chat.sessions.create(agent="late", model={"model_id": "m"})
        tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "What has changed?"}])
        tx.workflows.runs.create("late", trigger_id="t", current_phase="p")
        tx.messaging.messages.add(
            tx.messaging.sessions.get_or_create(platform="slack", channel_id="C9", user_id="U").id, role="user", content="new"
        )
    place.run(
        f"UPDATE {place.named('executions')} SET skill = skill || '!'",
        f"UPDATE {place.named('branches')} SET name = 'changed'",
        f"DELETE FROM {place.named('chat_step_usage')}",
        f"DELETE FROM {place.named('messaging_messages')} WHERE id IN (SELECT min(id) FROM {place.named('messaging_messages')})",
        f"UPDATE {place.named('tasks')} SET title = title || '?'",
    )


STOPS = [(("chat_parts", "copied"), 40), (("agents", "copied"), 10), (("agents", "compared"), 40)]


@pytest.mark.one_database
@pytest.mark.parametrize(("stop", "rows"), STOPS)
def test_what_changes_after_an_interruption_is_copied_too(
    pair: Pair, clock: FrozenClock, stop: tuple[str, str], rows: int
) -> None:
    place = filled(pair[0], clock)
    interrupted(pair, stopping_at(*stop), rows=rows)
    change_everything(place)
    resumed(pair, rows=rows)


@pytest.mark.one_database
def test_a_key_that_another_row_has_now(pair: Pair, clock: FrozenClock) -> None:
    """Rows that exchange a unique value, and one that takes that of a deleted row."""
    with Store.open(pair[0], clock=clock) as store, store.begin() as tx:
        for name in ("a", "b", "c"):
            tx.workflows.executions.start(trigger_type="t", trigger_id=name, skill="s", idempotency_key=name)
    interrupted(pair, stopping_at("executions", "compared"))
    place = Place(pair[0])
    named = place.named("executions")
    place.run(
        f"UPDATE {named} SET idempotency_key = NULL WHERE trigger_id = 'b'",
        f"UPDATE {named} SET idempotency_key = 'b' WHERE trigger_id = 'a'",
        f"DELETE FROM {named} WHERE trigger_id = 'c'",
        f"UPDATE {named} SET idempotency_key = 'c' WHERE trigger_id = 'b'",
    )
    resumed(pair)


@pytest.mark.one_database
def test_children_of_parents_that_are_new(pair: Pair) -> None:
    """Rows whose parents come after the place to which parents were copied are no reason to stop."""
    many(pair[0], 20)
    added: list[str] = []

    def later(table: str, done: int, total: int) -> None:
        if table == "messaging_sessions" and not added:  # the new one comes before the one that was copied
            added.append(table)
            with Store.open(pair[0]) as other, other.begin() as tx:
                session = tx.messaging.sessions.get_or_create(platform="slack", channel_id="new", user_id="U").id
                for number in range(9):
                    tx.messaging.messages.add(session, role="user", content=str(number))

    with Store.open(pair[0]) as source:
        report = copy_resumably(source, pair[1], rows=4, progress=later)
    assert added
    assert report.tables["messaging_messages"] == 29
    resumed_checksums(pair)


@pytest.mark.one_database
def test_an_event_log_and_its_heads_go_on(pair: Pair, clock: FrozenClock) -> None:
    with Store.open(pair[0], clock=clock, events=True) as source:
        session = source.chat.sessions.create(agent="build", model={"model_id": "m"}).id
        interrupted(pair, stopping_at("event_log"))
        source.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "?"}])
        copy_resumably(source, pair[1])
        with Store.open(pair[1]) as target:
            assert target.logs_events
            before = list(source.watch(session, timeout=0))
            assert list(target.watch(session, timeout=0)) == before != []
            target.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "!"}])
            (event,) = target.watch(session, after=before[-1].seq, timeout=0)
            assert event.seq == before[-1].seq + 1


def test_a_transaction_takes_so_many_rows(sqlite_url: str, postgres_url: str, clock: FrozenClock) -> None:
    """Postgres notes in each row which transaction wrote it."""
    filled(sqlite_url, clock)
    with Store.open(sqlite_url) as source:
        report = copy_resumably(source, postgres_url, rows=15)
    place = Place(postgres_url)
    rows = " UNION ALL ".join(
        f"SELECT xmin::text AS writer FROM {place.named(name)}"
        for name, count in report.tables.items()
        if count and name != "_meta"
    )
    counted = [count for (count,) in place.ask(f"SELECT count(*) FROM ({rows}) found GROUP BY writer")]
    assert sum(counted) == sum(count for name, count in report.tables.items() if name != "_meta")
    assert max(counted) == 15
    assert len(counted) > 20


def test_a_comparison_changes_so_many_rows_in_a_transaction(sqlite_url: str, postgres_url: str) -> None:
    many(sqlite_url, 50)
    pair = sqlite_url, postgres_url
    interrupted(pair, stopping_at("messaging_messages", "compared"), rows=100)
    Place(sqlite_url).run("UPDATE messaging_messages SET content = content || '!'")
    resumed(pair, rows=6)
    place = Place(postgres_url)
    query = f"SELECT count(*) FROM {place.named('messaging_messages')} GROUP BY xmin"
    assert sorted(count for (count,) in place.ask(query)) == [2, *[6] * 8]


# What a resumable copy refuses: the target stays what it was, or the copy can go on once the reason is gone.


@pytest.mark.one_database
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


def test_a_copy_of_itself_and_one_into_memory_are_refused(url: str) -> None:
    with opened(url) as (source,):
        for target in (url, "sqlite:///:memory:"):
            with pytest.raises(InvalidValue) as error:
                copy_resumably(source, target)
            assert error.value.path == "target"
        with pytest.raises(InvalidValue, match="at least 1"):
            copy_resumably(source, url, rows=0)
        with pytest.raises(InvalidValue, match="opens the target itself"):
            copy_resumably(source, source)  # type: ignore[arg-type]  # what the call refuses
    Store.open(url).close()


@pytest.mark.one_database
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
