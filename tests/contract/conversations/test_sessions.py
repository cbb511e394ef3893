"""Sessions: created with defaults or with what is given, changed column by column, and never half."""

from collections.abc import Callable
from datetime import UTC, timedelta, timezone
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound
from tests.contract.conftest import Raw
from tests.contract.conversations.making import (
    AT,
    BAD_COLUMNS,
    DAY,
    PROVENANCE,
    TABLES,
    delete_session,
    dump,
    make_branch,
    make_session,
    members,
    put,
    session_of,
    set_status,
    transitions,
    without_history,
)

# ---------------------------------------------------------------- creating


def test_a_minimal_session_is_live_has_no_status_and_is_active_now(store: Any, other: Any, clock: Any) -> None:
    """(c) 16"""
    made = make_session(store)
    assert made == session_of(other, made.id)
    assert (made.source_kind, made.status, made.name, made.user, made.node_metadata) == ("live", None, None, None, None)
    assert (made.created_at, made.updated_at, made.last_message_at) == (clock(), clock(), clock())
    assert (made.started_at, made.ended_at, made.ended_at_is_approximate) == (None, None, False)
    assert (made.first_msg_id, made.last_msg_id, made.invocation_kind) == (None, None, None)
    assert members(store, made.progression_id) == []


def test_everything_that_is_given_is_kept(store: Any, other: Any, raw: Raw) -> None:
    put(store, "m1", "m2")
    with store.begin() as tx:
        pool = tx.conversations.progressions.create("pool", ids=["m1", "m2"])
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


def test_an_instant_of_another_zone_is_the_same_instant(store: Any) -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    assert make_session(store, "s", created_at=AT.astimezone(east)).created_at == AT
    assert session_of(store, "s").created_at.tzinfo is UTC


def test_a_session_that_exists_is_given_back_as_it_is(store: Any, raw: Raw) -> None:
    """(c) 17"""
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


def test_two_sessions_may_share_one_progression(store: Any) -> None:
    first = make_session(store)
    assert make_session(store, progression_id=first.progression_id).progression_id == first.progression_id


def test_a_session_with_a_bad_value_is_not_created(store: Any, raw: Raw) -> None:
    """(c) 16; the transaction goes on."""
    with store.begin() as tx:
        for name, value in [*BAD_COLUMNS, ("created_at", 0), ("id", ""), ("id", 1), ("progression_id", "")]:
            with pytest.raises(InvalidValue) as refused:
                tx.conversations.sessions.create(**{name: value})
            assert refused.value.path.startswith(name), (name, value)
        tx.conversations.sessions.create(id="next")
    assert (raw.count("sessions"), raw.count("progressions"), raw.count("status_transitions")) == (1, 1, 0)


def test_a_session_with_an_unknown_column_is_not_created(store: Any, raw: Raw) -> None:
    with store.begin() as tx:
        for name in ("status_reason_code", "ended_at_is_approximate", "last_message_at", "colour", "Name", "name; --"):
            with pytest.raises(InvalidValue) as refused:
                tx.conversations.sessions.create(**{name: "x"})
            assert refused.value.path == name
    assert raw.count("sessions") == raw.count("progressions") == 0


def test_a_session_that_points_at_nothing_is_not_created(store: Any, raw: Raw) -> None:
    """(c) 20"""
    with store.begin() as tx:
        for pointer in ("progression_id", "first_msg_id", "last_msg_id"):
            with pytest.raises(Conflict) as refused:
                tx.conversations.sessions.create(status="running", **{pointer: "nowhere"})
            assert "nowhere" in str(refused.value)
        tx.conversations.sessions.create(id="next")
    assert (raw.count("sessions"), raw.count("progressions"), raw.count("status_transitions")) == (1, 1, 0)


def test_an_unknown_session_is_not_found(store: Any) -> None:
    with store.begin() as tx:
        verbs = tx.conversations.sessions
        calls: list[Callable[[], Any]] = [
            lambda: verbs.get("nobody"),
            lambda: verbs.update("nobody", name="x"),
            lambda: verbs.update("nobody", metadata_patch={"a": 1}),
            lambda: verbs.touch("nobody", AT),
            lambda: verbs.set_status("nobody", "completed"),
            lambda: verbs.transitions("nobody"),
        ]
        for call in calls:
            with pytest.raises(NotFound) as refused:
                call()
            assert (refused.value.kind, refused.value.id) == ("session", "nobody")
        assert verbs.delete("nobody") is False


# ---------------------------------------------------------------- counting, and rows of other programs


def test_counts_are_by_status_and_sessions_without_one_are_apart(store: Any) -> None:
    """(c) 18"""
    with store.read() as tx:
        assert tx.conversations.sessions.counts() == {}
    for status in ("running", "running", "completed", "failed", None):
        make_session(store, status=status)
    with store.read() as tx:
        assert tx.conversations.sessions.counts() == {"running": 2, "completed": 1, "failed": 1, None: 1}


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


def test_a_branch_without_a_session_is_a_typed_error(store: Any, raw: Raw) -> None:
    """(c) 20"""
    with pytest.raises(NotFound):
        make_branch(store, "nowhere")
    with pytest.raises(Conflict):
        make_branch(store, make_session(store).id, progression_id="nowhere")
    assert (raw.count("branches"), raw.count("progressions")) == (0, 1)
