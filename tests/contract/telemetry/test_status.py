"""The status log: transitions only, in the order of their ids."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as rules
from hypothesis import strategies as st

from persist import Store
from persist.errors import InvalidValue, NotFound
from persist.settings import Settings
from persist.telemetry import trim
from persist.telemetry.windows import sizes
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.contract.telemetry.scenes import do, log, t
from tests.examples import examples

DAY = [(60, "busy"), (61, "busy"), (300, "question"), (420, "busy"), (421, "busy"), (900, "idle")]
SECRET = {"prompt": "Go on? \x00 \ud83d", "choices": [1, 2.0, True, None]}


def test_repeats_are_no_transitions(store: Any, me: dict[str, str]) -> None:
    made = log(store, me, *DAY)
    assert [entry and entry.new_status for entry in made] == ["busy", None, "question", "busy", None, "idle"]
    history = do(store, "status", "history", **me)
    shown = [(entry.occurred_at, entry.new_status) for entry in history]
    assert shown == [(t(60), "busy"), (t(300), "question"), (t(420), "busy"), (t(900), "idle")]
    assert history == [entry for entry in made if entry is not None]
    assert do(store, "status", "current", **me) == made[-1]


def test_a_repeat_does_not_move_the_last_transition_into_a_status(store: Any, me: dict[str, str]) -> None:
    log(store, me, *DAY)
    assert do(store, "status", "last", "busy", **me).occurred_at == t(420)
    assert do(store, "status", "last", "question", **me).occurred_at == t(300)
    assert do(store, "status", "last", "crashed", **me) is None


def test_the_status_at_an_instant(store: Any, me: dict[str, str]) -> None:
    log(store, me, *DAY)
    asked = {59.999: None, 60: "busy", 299: "busy", 300: "question", 419.5: "question", 420: "busy", 10**9: "idle"}
    assert {second: do(store, "status", "at", t(second), **me) for second in asked} == asked


def test_other_metadata_is_a_transition_of_a_question_alone(store: Any, me: dict[str, str]) -> None:
    record = [
        ("question", {"prompt": "a", "n": 1}),
        ("question", {"n": 1, "prompt": "a"}),
        ("question", {"prompt": "b", "n": 1}),
        ("question", {"prompt": "b", "n": True}),
        ("question", None),
        ("busy", {"x": 1}),
        ("busy", {"x": 2}),
    ]
    made = [do(store, "status", "record", status, metadata=metadata, **me) for status, metadata in record]
    assert [entry is not None for entry in made] == [True, False, True, True, True, True, False]


def test_metadata_comes_back_as_it_was(store: Any, me: dict[str, str]) -> None:
    made = do(store, "status", "record", "question", metadata=SECRET, **me)
    assert made.metadata == SECRET
    assert do(store, "status", "current", **me) == made


def test_entries_are_numbered_by_one_sequence(store: Any) -> None:
    """Order is by these numbers: a later entry has a greater one, wherever the database keeps the table."""
    made = [do(store, "status", "record", word, instance_id=box) for box in "ab" for word in ("busy", "idle")]
    assert [entry.id for entry in made] == [1, 2, 3, 4]


def test_the_clock_says_when_and_seconds_are_whole(store: Any, me: dict[str, str], clock: FrozenClock) -> None:
    entry = do(store, "status", "record", "busy", **me)
    assert entry.occurred_at == clock().replace(microsecond=0)
    assert do(store, "status", "current", **me) == entry


def test_order_is_by_id_when_the_clock_went_back(store: Any, me: dict[str, str]) -> None:
    log(store, me, (100, "busy"), (50, "idle"), (70, "question"))
    assert do(store, "status", "current", **me).new_status == "question"
    assert [entry.new_status for entry in do(store, "status", "history", **me)] == ["busy", "idle", "question"]
    shown = [do(store, "status", "at", t(second), **me) for second in (49, 50, 69, 70, 100)]
    assert shown == [None, "idle", "idle", "question", "question"]
    assert do(store, "status", "durations", t(0), t(200), **me) == {"idle": 20.0, "question": 130.0}


def test_history_is_the_newest_ones_oldest_first(store: Any, me: dict[str, str]) -> None:
    log(store, me, *DAY)
    newest = do(store, "status", "history", limit=2, **me)
    assert [entry.new_status for entry in newest] == ["busy", "idle"]


def test_seconds_in_each_status(store: Any, me: dict[str, str]) -> None:
    log(store, me, *DAY)
    assert do(store, "status", "durations", t(0), t(1000), **me) == {"busy": 720.0, "question": 120.0, "idle": 100.0}
    assert do(store, "status", "durations", t(100), t(310.5), **me) == {"busy": 200.0, "question": 10.5}
    assert do(store, "status", "durations", t(0), t(60), **me) == {}
    assert do(store, "status", "durations", t(70), t(70), **me) == {}
    with store.read() as tx, pytest.raises(InvalidValue):
        tx.telemetry.status.durations(t(2), t(1), **me)


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc")), max_size=12), st.integers(-2, 22), st.integers(0, 15))
@rules(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_durations_are_what_every_second_says(
    sqlite_store: Store, entries: list[tuple[int, str]], since: int, length: int
) -> None:
    owner = {"instance_id": f"{entries} {since} {length}"}
    with sqlite_store.begin() as tx:
        for second, status in entries:
            tx.telemetry.status.record(status, at=t(second), **owner)
        counted: dict[str, float] = {}
        for second in range(since, since + length):
            status_then = tx.telemetry.status.at(t(second), **owner)
            if status_then is not None:
                counted[status_then] = counted.get(status_then, 0.0) + 1.0
        assert tx.telemetry.status.durations(t(since), t(since + length), **owner) == counted


def test_the_oldest_entry_that_is_kept_is_flagged(open_store: Any, me: dict[str, str]) -> None:
    store = open_store(settings=Settings(status_log_keep=2, status_log_trim_every=1))
    made = log(store, me, (1, "a"), (2, "b"), (3, "c"))
    assert [entry.is_oldest for entry in made] == [True, False, False]
    assert [(entry.new_status, entry.is_oldest) for entry in do(store, "status", "history", **me)] == [("b", True), ("c", False)]
    assert do(store, "status", "last", "b", **me).is_oldest
    assert not do(store, "status", "current", **me).is_oldest
    assert do(store, "status", "at", t(1), **me) is None
    assert do(store, "status", "durations", t(0), t(10), **me) == {"b": 1.0, "c": 7.0}


def test_nothing_is_known_of_an_instance_that_never_said_anything(store: Any, me: dict[str, str]) -> None:
    assert do(store, "status", "current", **me) is None
    assert do(store, "status", "at", t(10**9), **me) is None
    assert do(store, "status", "history", **me) == []
    assert do(store, "status", "durations", t(0), t(1), **me) == {}


def test_rows_of_other_programs_count(store: Any, raw: Any, me: dict[str, str]) -> None:
    columns, marks = ("occurred_at, new_status", "?, ?") if not me else ("instance_id, occurred_at, new_status", "'box', ?, ?")
    raw.rows(f"INSERT INTO status_log ({columns}) VALUES ({marks})", 60, "busy")
    assert do(store, "status", "current", **me).occurred_at == t(60)
    assert log(store, me, (70, "busy"), (80, "idle"))[0] is None
    assert do(store, "status", "last", "idle", **me).occurred_at - t(60) == timedelta(seconds=20)


def test_the_latest_of_every_instance(store: Any) -> None:
    """What changed last comes first; an instance without entries is not known."""
    for instance, entries in {"a": [(1, "idle"), (9, "busy")], "b": [(20, "idle")], "c": [(3, "idle"), (2, "question")]}.items():
        log(store, {"instance_id": instance}, *entries)
    latest = do(store, "status", "latest")
    shown = [(entry.instance_id, entry.new_status, entry.occurred_at) for entry in latest]
    assert shown == [("b", "idle", t(20)), ("a", "busy", t(9)), ("c", "question", t(2))]
    assert [entry.is_oldest for entry in latest] == [True, False, False]
    assert latest == [do(store, "status", "current", instance_id=entry.instance_id) for entry in latest]
    assert do(store, "status", "latest", limit=2) == latest[:2]


def test_older_entries_are_reached_page_by_page(store: Any, me: dict[str, str]) -> None:
    log(store, me, *DAY)
    everything = do(store, "status", "history", **me)
    found: list[Any] = []
    while page := do(store, "status", "history", limit=2, before=found[0].id if found else None, **me):
        found = [*page, *found]
    assert found == everything


def test_older_instances_follow_the_last_one_that_was_shown(store: Any) -> None:
    for number in range(7):
        log(store, {"instance_id": f"i{number}"}, (number // 2, "idle"))
    everything = do(store, "status", "latest")
    found: list[Any] = []
    while page := do(store, "status", "latest", limit=3, before=found[-1].instance_id if found else None):
        found += page
    assert (found, len(found)) == (everything, 7)
    with pytest.raises(NotFound):
        do(store, "status", "latest", before="unknown")


# Windows: a bounded number of rows of each instance, always those written last, whoever opens the database when.


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
    shown = {table: sizes(settings, table) for table in TABLES}
    assert shown == {"status_log": (10_000, 1_000), "usage_samples": (86_400, 8_640), "tool_history": (1_000, 100)}
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
