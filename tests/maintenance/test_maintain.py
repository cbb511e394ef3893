"""What a job runs every night: it mends and bounds, deletes nothing unless told to, and may run beside anything."""

from collections import Counter
from contextlib import ExitStack, closing
from datetime import timedelta
from inspect import Parameter, isfunction, signature
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

import persist.maintenance
from persist import AsyncStore, Store
from persist.chat.models import turns
from persist.errors import InvalidValue, ReadOnlyTransaction, Unavailable
from persist.maintenance import MaintenanceReport, maintain
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.at_once import together
from tests.contract.chat.scenes import create, shown
from tests.contract.conftest import Raw
from tests.contract.conversations import making as talk
from tests.maintenance.pruning_scenes import every_row, forty_days_later
from tests.seeded_databases import with_file

pytestmark = pytest.mark.one_database

LONG = Settings(fold_ms=3_600_000, fold_bytes=2**20)
"""With these a recorder's tail stays a tail until it is closed."""
TINY = Settings(status_log_keep=3, usage_samples_keep=4, tool_history_keep=5)
STEPS = ["fold tails", "clear dead turns", "fold progressions", "trim windows", "collect blobs"]


def done(report: MaintenanceReport) -> Counter[str]:
    """The rows of every table, over all steps."""
    assert not report.failed
    return sum((Counter(step.tables) for step in report.steps), Counter())


def test_without_settings_nothing_is_deleted(filled: str) -> None:
    with forty_days_later(filled) as store:
        maintain(store)
        before = every_row(filled)
        report = maintain(store)
        assert [step.name for step in report.steps] == [*STEPS, "tidy the database"]
        assert done(report) == {}
        assert every_row(filled) == before


def test_it_folds_what_a_dead_writer_left(url: str, clock: FrozenClock) -> None:
    chunks = [{"type": "start"}, {"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "so far"}]
    with Store.open(with_file(url), clock=clock, settings=LONG) as store, ExitStack() as recorders, closing(Raw(url)) as raw:
        session = create(store)
        recorder = recorders.enter_context(store.record(session))
        for chunk in chunks:
            recorder.feed(chunk)
        seen, tails = shown(store, session), raw.count("chat_part_deltas")
        assert tails > 0
        assert done(maintain(store)) == {}  # somebody may be at it
        clock.advance(seconds=6)
        assert done(maintain(store, dry_run=True)) == {"chat_parts": 1}
        assert raw.count("chat_part_deltas") == tails
        assert done(maintain(store)) == {"chat_parts": 1}
        assert raw.count("chat_part_deltas") == 0
        assert shown(store, session) == seen
        recorder.feed({"type": "text-delta", "id": "t", "delta": " and on"})
        assert shown(store, session)[0]["parts"][0]["text"] == "so far and on"


def test_it_removes_turns_of_the_dead_and_folds_progressions_that_lag(store: Store, url: str, clock: FrozenClock) -> None:
    session = talk.make_session(store, "s")
    talk.make_branch(store, "s", "b")
    talk.say(store, "b", "m1", "m2")
    alive, dead, failed, young = (create(store) for _ in range(4))
    with store.record(alive) as recorder, closing(Raw(url)) as raw:
        recorder.feed({"type": "start"})
        old = {"owner": "elsewhere/1/0", "started_at": clock(), "seen_at": clock()}
        clock.advance(delta=timedelta(minutes=6))
        new = {"owner": "elsewhere/1/0", "started_at": clock(), "seen_at": clock()}
        with store.begin() as tx:
            for id, state, times in ((dead, "running", old), (failed, "error", old), (young, "running", new)):
                tx._work._core(insert(turns).values(session_id=id, state=state, **times), None)
        collection = "SELECT collection FROM progressions WHERE id = ?"
        for dry_run in (True, False):
            assert raw.json(collection, session.progression_id) == []
            assert done(maintain(store, dry_run=dry_run)) == {"chat_turns": 1, "progressions": 2}
        assert raw.json(collection, session.progression_id) == ["m1", "m2"]
        assert {id for (id,) in raw.rows("SELECT session_id FROM chat_turns")} == {alive, failed, young}


def _fill_windows(store: Store, clock: FrozenClock) -> None:
    for instance in ("a", "b"):
        for number in range(8):
            clock.advance(seconds=1)
            with store.begin() as tx:
                tx.telemetry.status.record(f"word {number}", instance_id=instance)
                tx.telemetry.usage.sample(at=clock(), token_input=number, instance_id=instance)
                tx.telemetry.tools.record("bash", instance_id=instance)


def test_it_trims_the_windows_of_every_instance_to_their_sizes(url: str, clock: FrozenClock) -> None:
    with Store.open(url, clock=clock) as store:
        _fill_windows(store, clock)
    with Store.open(url, clock=clock, settings=TINY) as store:
        expected = {"status_log": 2 * 5, "usage_samples": 2 * 4, "tool_history": 2 * 3}
        before = every_row(url)
        assert done(maintain(store, dry_run=True)) == expected
        assert every_row(url) == before
        assert done(maintain(store)) == expected
        assert [entry.new_status for entry in store.telemetry.status.history(instance_id="b")] == [
            f"word {number}" for number in (5, 6, 7)
        ]


def test_a_step_that_fails_stops_no_other(url: str, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any, **__: Any) -> int:
        raise Unavailable("The server went away")

    with Store.open(url, clock=clock) as store:
        _fill_windows(store, clock)
    monkeypatch.setattr("persist.maintenance.pruning.Sweep.fold_batch", gone)
    with Store.open(url, clock=clock, settings=TINY) as store:
        report = maintain(store)
    assert report.failed
    assert [step.name for step in report.steps if step.error is not None] == ["fold tails"]
    assert report.steps[0].error == str(Unavailable("The server went away"))
    assert report.steps[3].tables["status_log"] == 10


def test_several_at_once_do_each_thing_once(url: str, clock: FrozenClock) -> None:
    with Store.open(url, clock=clock) as store:
        _fill_windows(store, clock)
        for number in range(30):
            talk.make_session(store, f"s{number}")
            talk.make_branch(store, f"s{number}", f"b{number}")
            talk.say(store, f"b{number}", f"m{number}")
        with Store.open(url, clock=clock, settings=TINY) as one, Store.open(url, clock=clock, settings=TINY) as two:
            reports = together([lambda: maintain(one), lambda: maintain(two)])
        total = done(reports[0]) + done(reports[1])
        assert total == {"status_log": 10, "usage_samples": 8, "tool_history": 6, "progressions": 60}


def test_wrong_calls(store: Store, url: str) -> None:
    with pytest.raises(InvalidValue):
        maintain(store, dry_run=1)  # type: ignore[arg-type]  # that is the point
    with Store.open(url, read_only=True) as reader, pytest.raises(ReadOnlyTransaction):
        maintain(reader)
    with Store.open("sqlite:///:memory:") as memory:
        assert done(maintain(memory)) == {}


def test_every_function_takes_a_store_and_says_so_of_what_is_none(sqlite_url: str, tmp_path: Path) -> None:
    """An AsyncStore is told what to do instead; each argument that is a store is looked at."""
    functions = {name: getattr(persist.maintenance, name) for name in persist.maintenance.__all__}
    asked = {
        (name, one): function
        for name, function in functions.items()
        if isfunction(function)
        for one, parameter in signature(function).parameters.items()
        if parameter.annotation in (Store, "Store")
    }
    assert len(asked) == 18, asked.keys()
    with Store.open(sqlite_url) as store:
        given = {"store": store, "source": store, "target": store, "path": tmp_path / "new", "target_url": sqlite_url}
        wrong: list[Any] = [AsyncStore.open(sqlite_url), None, sqlite_url]
        for (name, one), function in asked.items():
            needed = [two for two, found in signature(function).parameters.items() if found.default is Parameter.empty]
            for bad in wrong:
                with pytest.raises(InvalidValue, match=r"Store\.open") as refused:
                    function(**{two: bad if two == one else given.get(two) for two in needed})
                assert refused.value.path == one, name
                assert type(bad).__name__ in str(refused.value)
        with pytest.raises(InvalidValue):
            persist.maintenance.doctor(wrong[0])  # by its place, too
