"""Sessions: created with defaults or with what is given, changed column by column, and never half."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import combinations
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue
from tests.contract.conftest import Raw, ids_of_pages
from tests.contract.conversations.making import (
    AT,
    DAY,
    PROVENANCE,
    TABLES,
    change,
    delete_session,
    dump,
    make_session,
    members,
    put,
    session_of,
    sessions,
    set_status,
    transitions,
    without_history,
)


def test_a_minimal_session_is_live_has_no_status_and_is_active_now(store: Any, other: Any, clock: Any) -> None:
    made = make_session(store)
    assert made == session_of(other, made.id)
    assert (made.source_kind, made.status, made.name, made.user, made.node_metadata) == ("live", None, None, None, None)
    assert (made.created_at, made.updated_at, made.last_message_at) == (clock(), clock(), clock())
    assert (made.started_at, made.ended_at, made.ended_at_is_approximate) == (None, None, False)
    assert (made.first_msg_id, made.last_msg_id, made.invocation_kind) == (None, None, None)
    assert members(store, made.progression_id) == []


def test_everything_that_is_given_is_kept(store: Any, other: Any, raw: Raw) -> None:
    put(store, "m1", "m2")
    pool = store.conversations.progressions.create("pool", ids=["m1", "m2"])
    given = {
        "name": "Überblick \x00 \ud83d",
        "user": "maria",
        "node_metadata": {"deep": {"list": [1, 2.5, None]}},
        "created_at": AT,
        "started_at": AT + DAY,
        "ended_at": AT + 2 * DAY,
        "updated_at": AT + 3 * DAY,
        "progression_id": pool,
        "first_msg_id": "m1",
        "last_msg_id": "m2",
        "status": "completed",
        **PROVENANCE,
    }
    make_session(store, "s", **given)
    found = session_of(other, "s")
    assert {name: getattr(found, name) for name in given} == given
    assert (found.last_message_at, found.ended_at_is_approximate) == (AT + DAY, False)
    assert raw.count("progressions") == 1


def test_a_session_that_exists_is_given_back_as_it_is(store: Any, raw: Raw) -> None:
    first = make_session(store, "s", name="first", status="running")
    before = dump(raw)
    again = make_session(store, "s", name="second", status="completed", node_metadata={"a": 1}, progression_id="nowhere")
    assert again == first
    assert dump(raw) == before


def test_every_published_kind_and_source_is_accepted(store: Any) -> None:
    for kind in ("agent", "play", "flow", "fanout", "show-play", "engine", None):
        assert make_session(store, invocation_kind=kind).invocation_kind == kind
    for source in ("live", "imported_fs", "imported_codex", None):
        assert make_session(store, source_kind=source).source_kind == source


def test_a_session_with_an_unknown_column_is_not_created(store: Any, raw: Raw) -> None:
    with store.begin() as tx:
        for name in ("status_reason_code", "ended_at_is_approximate", "last_message_at", "colour", "Name", "name; --"):
            with pytest.raises(InvalidValue) as refused:
                tx.conversations.sessions.create(**{name: "x"})
            assert refused.value.path == name
    assert raw.count("sessions") == raw.count("progressions") == 0


def test_counts_are_by_status_and_sessions_without_one_are_apart(store: Any) -> None:
    assert store.conversations.sessions.counts() == {}
    for status in ("running", "running", "completed", "failed", None):
        make_session(store, status=status)
    assert store.conversations.sessions.counts() == {"running": 2, "completed": 1, "failed": 1, None: 1}


def test_a_status_of_another_program_can_be_read_and_left(store: Any, raw: Raw) -> None:
    make_session(store, "s")
    raw.rows("UPDATE sessions SET status = 'paused' WHERE id = 's'")
    assert session_of(store, "s").status == "paused"
    assert set_status(store, "s", "completed")
    assert transitions(store, "s")[0].previous_status == "paused"


def test_the_schema_itself_refuses_an_unknown_kind(store: Any, raw: Raw) -> None:
    before = make_session(store, "s")
    for column in ("invocation_kind", "source_kind"):
        with pytest.raises(Exception, match=column):  # whichever driver's
            raw.rows(f"UPDATE sessions SET {column} = 'cron' WHERE id = 's'")
    assert session_of(store, "s") == before


def test_a_failure_of_the_database_leaves_no_part_of_a_new_session(store: Any, raw: Raw) -> None:
    """The row of history is the last thing written; without it there is no session."""
    with without_history(raw):
        with pytest.raises(Exception, match="status_transitions"):  # the driver's words, of a table that is never missing
            make_session(store, "s", status="running")
        make_session(store, "t")
    delete_session(store, "t")
    assert [raw.count(table) for table in TABLES] == [0] * len(TABLES)


# The list of sessions: latest update first, filtered, in pages that neither repeat nor skip a session.


FILTERS = {
    "status": "failed",
    "agent_name": "reviewer",
    "playbook_name": "release",
    "invocation_kind": "flow",
    "source_kind": "imported_fs",
    "show_topic": "quality",
}


def pages(store: Any, **options: Any) -> Iterator[list[str]]:
    return ids_of_pages(store.conversations.sessions.list, **options)


@pytest.fixture
def ten(store: Any) -> list[str]:
    """Ten sessions, the earliest update first; pairs of them share their instant."""
    return [make_session(store, f"s{number}", updated_at=AT + DAY * (number // 2)).id for number in range(10)]


def test_the_latest_update_comes_first_and_ids_break_ties(store: Any, ten: list[str]) -> None:
    assert sessions(store) == ten[::-1]
    change(store, "s3", name="touched")
    assert sessions(store)[0] == "s3"


def test_pages_are_full_but_the_last_and_an_exact_end_has_no_cursor(store: Any, ten: list[str]) -> None:
    for limit in (1, 3, 4, 5, 10, 11):
        got = list(pages(store, limit=limit))
        assert [id for page in got for id in page] == ten[::-1]
        assert all(len(page) == limit for page in got[:-1])
        assert len(got) == -(-10 // limit)


def test_a_session_that_is_touched_while_paging_hides_no_other(store: Any, ten: list[str]) -> None:
    seen = []
    for number, page in enumerate(pages(store, limit=3)):
        seen += page
        if number == 0:
            change(store, "s0", name="the earliest becomes the latest")
    assert [id for id in seen if id != "s0"] == [id for id in ten[::-1] if id != "s0"]


def test_instants_finer_than_a_microsecond_neither_repeat_nor_skip(store: Any, ten: list[str], raw: Raw) -> None:
    """Other programs write the float of their clock, of which a datetime is a rounding; several become the same datetime."""
    base = 1_763_000_000.123456
    step = 2**-22  # the distance of floats of this size: four to a microsecond
    instants = {f"s{number}": base + step * (number * 7 % 10) for number in range(10)}
    for id, at in instants.items():
        raw.rows("UPDATE sessions SET updated_at = ? WHERE id = ?", at, id)
    stored = dict(raw.rows("SELECT id, updated_at FROM sessions"))
    assert stored == instants
    assert len(set(stored.values())) == 10
    assert len({session.updated_at for session in _items(store)}) < 10
    expected = sorted(instants, key=lambda id: instants[id], reverse=True)
    for limit in (1, 2, 3, 7):
        assert [id for page in pages(store, limit=limit) for id in page] == expected


def _items(store: Any) -> Any:
    return store.conversations.sessions.list().items


def test_filters_are_all_heeded(store: Any) -> None:
    for number, name in enumerate(FILTERS):
        make_session(store, f"all but {number}", **{key: value for key, value in FILTERS.items() if key != name})
    make_session(store, "all", **FILTERS)
    assert sessions(store, **FILTERS) == ["all"]
    for number, name in enumerate(FILTERS):
        rest = {key: value for key, value in FILTERS.items() if key != name}
        assert set(sessions(store, **rest)) == {"all", f"all but {number}"}


def test_since_is_inclusive(store: Any, ten: list[str]) -> None:
    assert sessions(store, since=AT + 3 * DAY) == ten[:5:-1]
    assert sessions(store, since=AT + 3 * DAY + timedelta(microseconds=1)) == ten[:7:-1]
    assert list(pages(store, since=AT + 3 * DAY, limit=3)) == [["s9", "s8", "s7"], ["s6"]]
    assert sessions(store, since=AT + 9 * DAY) == []


def test_a_hundred_are_a_page_unless_told_otherwise(store: Any) -> None:
    with store.begin() as tx:
        for number in range(101):
            tx.conversations.sessions.create(id=f"s{number:03}")
    assert [len(page) for page in pages(store)] == [100, 1]


@pytest.mark.parametrize("since", [False, True])
@pytest.mark.parametrize("further", [False, True])
def test_a_page_reads_an_index_in_its_order_on_sqlite(
    sqlite_url: str, statements: list[str], open_raw: Callable[[str], Raw], since: bool, further: bool
) -> None:
    """No page scans the table or sorts what it reads there; a filter alone is answered by the index of its own."""
    asked: dict[tuple[str, ...], str] = {}
    with Store.open(sqlite_url) as store:
        for number in range(3):
            make_session(store, updated_at=AT + DAY * number, **FILTERS)
        for names in [(), *((name,) for name in FILTERS), *combinations(FILTERS, 2), tuple(FILTERS)]:
            options: dict[str, Any] = {name: FILTERS[name] for name in names} | ({"since": AT} if since else {})
            after = store.conversations.sessions.list(limit=1, **options).cursor
            statements.clear()
            store.conversations.sessions.list(**options, after=after if further else None)
            (asked[names],) = [one for one in statements if one.startswith("SELECT")]
    raw = open_raw(sqlite_url)
    for names, statement in asked.items():
        plan = [str(step) for *_, step in raw.rows(f"EXPLAIN QUERY PLAN {statement}")]
        assert len(plan) == 1, plan
        assert "USING INDEX" in plan[0]
        if len(names) == 1:
            assert f"ix_sessions_{names[0]}_updated_at_id" in plan[0]
        if names or since or further:
            assert plan[0].startswith("SEARCH"), plan


# Sessions are changed column by column, merged into, touched, and never half.


def test_an_update_changes_these_columns_and_the_clock(store: Any, other: Any, clock: Any) -> None:
    put(store, "m1")
    before = make_session(store, "s", name="old", user="u", node_metadata={"a": 1})
    clock.advance(seconds=60)
    given = {**PROVENANCE, "name": "new", "first_msg_id": "m1", "last_msg_id": "m1", "started_at": AT, "last_message_at": AT}
    changed = change(store, "s", **given)
    assert changed == before.model_copy(update={**given, "updated_at": clock()})
    assert session_of(other, "s") == changed


def test_an_update_with_none_clears_the_column(store: Any) -> None:
    put(store, "m")
    given = {"name": "n", "user": "u", "agent_name": "a", "first_msg_id": "m", "started_at": AT, "node_metadata": {"a": 1}}
    before = make_session(store, "s", **given)
    assert change(store, "s", **dict.fromkeys(given)) == before.model_copy(update=dict.fromkeys(given))


def test_updated_at_may_be_given(store: Any, clock: Any) -> None:
    make_session(store, "s")
    clock.advance(seconds=60)
    assert change(store, "s", name="n", updated_at=AT).updated_at == AT
    assert change(store, "s", updated_at=AT - DAY, metadata_patch={"a": 1}).updated_at == AT - DAY


def test_an_end_that_is_told_is_not_approximate(store: Any) -> None:
    assert make_session(store, "s", status="failed").ended_at_is_approximate is True
    changed = change(store, "s", ended_at=AT)
    assert (changed.ended_at, changed.ended_at_is_approximate) == (AT, False)


def test_an_update_of_nothing_changes_nothing(store: Any, clock: Any) -> None:
    before = make_session(store, "s", node_metadata={"a": 1})
    clock.advance(seconds=60)
    assert change(store, "s") == before


def test_an_update_of_an_unknown_or_fixed_column_changes_nothing(store: Any, raw: Raw) -> None:
    make_session(store, "s", name="n")
    before = dump(raw)
    with store.begin() as tx:
        for name in ("colour", "created_at", "progression_id", "status_reason_code", "ended_at_is_approximate", "name = 'x' --"):
            with pytest.raises(InvalidValue) as refused:
                tx.conversations.sessions.update("s", **{"name": "x", name: "y"})
            assert refused.value.path == name
    assert dump(raw) == before


def test_the_status_in_an_update_goes_the_way_of_set_status(store: Any, clock: Any) -> None:
    make_session(store, "s", status="running")
    clock.advance(seconds=1)
    changed = change(store, "s", status="failed", name="n")
    assert (changed.status, changed.name, changed.ended_at) == ("failed", "n", clock())
    assert [(row.previous_status, row.status) for row in transitions(store, "s")] == [(None, "running"), ("running", "failed")]
    told = make_session(store, status="running").id
    assert change(store, told, status="failed", ended_at=AT).ended_at == AT


def test_an_update_that_repeats_the_status_leaves_no_row_of_history(store: Any) -> None:
    make_session(store, "s", status="completed")
    assert change(store, "s", status="completed", name="n").name == "n"
    assert len(transitions(store, "s")) == 1


def test_a_patch_merges_and_null_removes(store: Any, other: Any, clock: Any) -> None:
    make_session(store, "s", node_metadata={"keep": 1, "drop": 2, "deep": {"a": 1, "b": 2}, "list": [1, 2]})
    clock.advance(seconds=1)
    changed = change(store, "s", metadata_patch={"drop": None, "deep": {"b": None, "c": {"d": 3}}, "list": [3], "new": 0})
    assert changed.node_metadata == {"keep": 1, "deep": {"a": 1, "c": {"d": 3}}, "list": [3], "new": 0}
    assert changed.updated_at == clock()
    assert session_of(other, "s") == changed


def test_a_patch_makes_metadata_where_there_is_none(store: Any) -> None:
    make_session(store, "s")
    assert change(store, "s", metadata_patch={"a": {"b": None, "c": 1}}).node_metadata == {"a": {"c": 1}}


def test_metadata_as_a_column_is_replaced_whole(store: Any, other: Any) -> None:
    make_session(store, "s", node_metadata={"a": 1})
    change(store, "s", node_metadata={"b": {"c": [1, 2.5, True, None]}})
    assert session_of(other, "s").node_metadata == {"b": {"c": [1, 2.5, True, None]}}
    with store.begin() as tx, pytest.raises(InvalidValue):
        tx.conversations.sessions.update("s", node_metadata={"d": 1}, metadata_patch={"e": 1})
    assert session_of(other, "s").node_metadata == {"b": {"c": [1, 2.5, True, None]}}


def test_a_touch_moves_the_clocks_forward_and_never_back(store: Any, clock: Any) -> None:
    made = make_session(store, "s")

    def touch(at: datetime) -> tuple[Any, Any]:
        touched = store.conversations.sessions.touch("s", at)
        assert touched == session_of(store, "s")
        return touched.last_message_at, touched.updated_at

    later = made.updated_at + DAY
    assert touch(made.updated_at - DAY) == (made.last_message_at, made.updated_at)
    assert touch(later) == (later, later)
    assert touch(made.updated_at) == (later, later)
    assert touch(later + timedelta(microseconds=1)) == (later + timedelta(microseconds=1),) * 2


def test_each_clock_moves_by_itself(store: Any) -> None:
    make_session(store, "s", started_at=AT, updated_at=AT + 2 * DAY)
    touched = store.conversations.sessions.touch("s", AT + DAY)
    assert (touched.last_message_at, touched.updated_at) == (AT + DAY, AT + 2 * DAY)
    change(store, "s", last_message_at=None)
    assert store.conversations.sessions.touch("s", AT).last_message_at == AT
