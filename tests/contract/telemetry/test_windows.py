"""Windows: a bounded number of rows of each instance, always those written last, whoever opens the database when."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as rules
from hypothesis import strategies as st

from persist import Store
from persist.errors import InvalidValue
from persist.settings import Settings
from persist.telemetry import trim
from persist.telemetry.windows import sizes
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.contract.telemetry.scenes import do, t
from tests.examples import examples

TABLES = {"status_log": "id", "usage_samples": "occurred_at", "tool_history": "id"}


def small(keep: int = 5, every: int | None = 5) -> Settings:
    sizes = {f"{table}_keep": keep for table in TABLES} | {f"{table}_trim_every": every for table in TABLES}
    return Settings(**sizes)


def insert(store: Any, table: str, number: int, me: dict[str, str]) -> None:
    """A row of that number: also its second."""
    if table == "status_log":
        do(store, "status", "record", f"word {number}", at=t(number), **me)
    elif table == "usage_samples":
        do(store, "usage", "sample", at=t(number), token_input=number, **me)
    else:
        do(store, "tools", "record", "bash", duration_ms=number, at=t(number), **me)


def kept(raw: Raw, table: str, me: dict[str, str]) -> list[int]:
    owner = me.get("instance_id", "")
    query = f"SELECT occurred_at FROM {table} WHERE instance_id = ? ORDER BY {TABLES[table]}"
    return [second for (second,) in raw.rows(query, owner)]


@pytest.mark.parametrize("table", TABLES)
def test_every_fifth_insert_trims(open_store: Any, open_raw: Any, database_url: str, me: dict[str, str], table: str) -> None:
    """5"""
    store = open_store(settings=small())
    raw, counts = open_raw(database_url), []
    for number in range(1, 13):
        insert(store, table, number, me)
        rows = kept(raw, table, me)
        counts.append(len(rows))
        assert rows == list(range(number + 1 - len(rows), number + 1))
    assert counts == [1, 2, 3, 4, 5, 6, 7, 8, 9, 5, 6, 7]


@pytest.mark.parametrize("table", TABLES)
def test_restarts_do_not_disturb_the_cadence(
    open_store: Any, open_raw: Any, database_url: str, me: dict[str, str], table: str
) -> None:
    """5"""
    open_store().close()
    raw, counts = open_raw(database_url), []
    for number in range(1, 13):
        store = open_store(settings=small())
        insert(store, table, number, me)
        store.close()
        counts.append(len(kept(raw, table, me)))
    assert counts == [1, 2, 3, 4, 5, 6, 7, 8, 9, 5, 6, 7]


@pytest.mark.parametrize("table", TABLES)
def test_each_instance_has_a_window_of_its_own(open_store: Any, open_raw: Any, database_url: str, table: str) -> None:
    """6"""
    store, raw = open_store(settings=small()), open_raw(database_url)
    for number in range(1, 31):
        for name in ("a", "b") if number % 3 else ("a",):
            insert(store, table, number, {"instance_id": name})
    with store.begin() as tx:
        assert [trim(tx, table, name) for name in ("a", "b")] == [0, 0]
    assert kept(raw, table, {"instance_id": "a"}) == [26, 27, 28, 29, 30]
    assert kept(raw, table, {"instance_id": "b"}) == [23, 25, 26, 28, 29]


@pytest.mark.parametrize("table", TABLES)
def test_trimming_leaves_exactly_the_newest(
    open_store: Any, open_raw: Any, database_url: str, me: dict[str, str], table: str
) -> None:
    store, raw = open_store(settings=small(keep=3, every=100)), open_raw(database_url)
    for number in range(1, 9):
        insert(store, table, number, me)
    for name in ("first", "second"):
        insert(store, table, 4, {"instance_id": name})
    with store.begin() as tx:
        assert trim(tx, table, **me) == 5
        assert trim(tx, table, **me) == 0
    assert kept(raw, table, me) == [6, 7, 8]
    assert kept(raw, table, {"instance_id": "first"}) == [4]


def test_a_window_that_does_not_exist_is_refused(store: Any, me: dict[str, str]) -> None:
    with store.begin() as tx, pytest.raises(InvalidValue):
        trim(tx, "tasks", **me)


def test_a_sample_that_adds_to_a_second_is_as_new_as_one_that_begins_it(
    open_store: Any, open_raw: Any, database_url: str, me: dict[str, str]
) -> None:
    store, raw = open_store(settings=small(keep=2, every=2)), open_raw(database_url)
    rows = []
    for number in (1, 2, 3, 1, 4, 3, 5):
        insert(store, "usage_samples", number, me)
        rows.append(kept(raw, "usage_samples", me))
    assert rows == [[1], [1, 2], [1, 2, 3], [1, 2, 3], [1, 4], [1, 3, 4], [3, 5]]


@pytest.mark.parametrize("table", TABLES)
def test_a_clock_that_was_ahead_pushes_nothing_out(
    open_store: Any, open_raw: Any, database_url: str, clock: FrozenClock, me: dict[str, str], table: str
) -> None:
    store, raw = open_store(settings=small(keep=50, every=None)), open_raw(database_url)
    now = int(clock().timestamp())
    for number in range(50):
        insert(store, table, now + 10**8 + number, me)
    for number in range(1, 121):
        insert(store, table, now - number, me)  # and this one goes backwards
        rows = kept(raw, table, me)
        assert set(range(now - number, now - max(0, number - 50))) <= set(rows)
        assert len(rows) <= 54
    assert max(kept(raw, table, me)) < now


def test_rows_that_others_insert_are_older_than_our_own(
    open_store: Any, open_raw: Any, database_url: str, me: dict[str, str]
) -> None:
    """Those that a command line writes beside us, or wrote before there was an order: among them the instants tell."""
    store, raw = open_store(settings=small(keep=3, every=100)), open_raw(database_url)
    insert(store, "usage_samples", 5, me)
    for second in (90, 70, 80, 60):
        raw.rows("INSERT INTO usage_samples (instance_id, occurred_at) VALUES (?, ?)", me.get("instance_id", ""), second)
    with store.begin() as tx:
        assert trim(tx, "usage_samples", **me) == 2
    assert kept(raw, "usage_samples", me) == [5, 80, 90]
    insert(store, "usage_samples", 80, me)  # what it adds to is its own now
    insert(store, "usage_samples", 6, me)
    with store.begin() as tx:
        assert trim(tx, "usage_samples", **me) == 1
    assert kept(raw, "usage_samples", me) == [5, 6, 80]


def test_the_sizes_of_the_windows() -> None:
    settings = Settings()
    assert {table: sizes(settings, table) for table in TABLES} == {
        "status_log": (10_000, 1_000),
        "usage_samples": (86_400, 8_640),
        "tool_history": (1_000, 100),
    }
    assert sizes(Settings(tool_history_keep=7), "tool_history") == (7, 1)
    assert sizes(Settings(tool_history_keep=7, tool_history_trim_every=30), "tool_history") == (7, 30)
    with pytest.raises(InvalidValue):
        Settings(tool_history_keep=0)


def lose(store: Any, me: dict[str, str]) -> None:
    with store.begin() as tx:
        tx.telemetry.tools.record("lost", **me)
        raise ZeroDivisionError


def test_an_insert_that_is_rolled_back_is_not_counted(
    open_store: Any, open_raw: Any, database_url: str, me: dict[str, str]
) -> None:
    store, raw = open_store(settings=small()), open_raw(database_url)
    for number in range(1, 10):
        with pytest.raises(ZeroDivisionError):
            lose(store, me)
        insert(store, "tool_history", number, me)
    assert kept(raw, "tool_history", me) == list(range(1, 10))


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40)), min_size=1, max_size=40), st.integers(1, 6), st.integers(1, 6)
)
@rules(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_window_is_ever_too_full_and_what_was_written_last_is_always_there(
    tmp_path: Any, open_raw: Any, samples: list[tuple[str, int]], keep: int, every: int
) -> None:
    """Of samples at any times, which arrive late, or early, and add to seconds that are there."""
    path = tmp_path / f"{abs(hash((tuple(samples), keep, every)))}.db"
    written: dict[str, dict[int, None]] = {"a": {}, "b": {}}
    with Store.open(f"sqlite:///{path}", settings=small(keep, every)) as store:
        raw = open_raw(f"sqlite:///{path}")
        for name, second in samples:
            insert(store, "usage_samples", second, {"instance_id": name})
            written[name].pop(second, None)
            written[name][second] = None
            rows = kept(raw, "usage_samples", {"instance_id": name})
            assert len(rows) <= keep + every - 1
            assert set(list(written[name])[-keep:]) <= set(rows)
        for name, seconds in written.items():
            owner = {"instance_id": name}
            before = len(kept(raw, "usage_samples", owner))
            with store.begin() as tx:
                assert trim(tx, "usage_samples", **owner) == max(0, before - keep)
            assert kept(raw, "usage_samples", owner) == sorted(list(seconds)[-keep:])
        raw.close()
