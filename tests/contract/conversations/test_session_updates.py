"""Sessions are changed column by column, merged into, touched, and never half."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue
from tests.contract.conftest import Raw
from tests.contract.conversations.making import AT, DAY, PROVENANCE, change, dump, make_session, put, session_of, transitions

# ---------------------------------------------------------------- changing


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
    """(c) 16"""
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


# ---------------------------------------------------------------- metadata


def test_a_patch_merges_and_null_removes(store: Any, other: Any, clock: Any) -> None:
    """(d) 2"""
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
    """(d) 3"""
    make_session(store, "s", node_metadata={"a": 1})
    change(store, "s", node_metadata={"b": {"c": [1, 2.5, True, None]}})
    assert session_of(other, "s").node_metadata == {"b": {"c": [1, 2.5, True, None]}}
    with store.begin() as tx, pytest.raises(InvalidValue):
        tx.conversations.sessions.update("s", node_metadata={"d": 1}, metadata_patch={"e": 1})
    assert session_of(other, "s").node_metadata == {"b": {"c": [1, 2.5, True, None]}}


# ---------------------------------------------------------------- touching


def test_a_touch_moves_the_clocks_forward_and_never_back(store: Any, clock: Any) -> None:
    """(c) 19"""
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
