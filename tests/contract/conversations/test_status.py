"""What the status of a session may become, who may say so, and what a guard that misses does."""

from typing import Any

import pytest

from persist.errors import InvalidValue, PersistError, TransitionError
from tests.contract.conftest import Raw
from tests.contract.conversations.making import (
    AT,
    ENDED,
    STATUSES,
    dump,
    make_session,
    session_of,
    set_status,
    transitions,
)

# ---------------------------------------------------------------- the table


def test_what_may_follow_what(store: Any, other: Any, clock: Any) -> None:
    """(c) 23: none and running may become anything else; what has ended stays so."""
    for current in (None, *STATUSES):
        for wanted in STATUSES:
            before = make_session(store, status=current)
            written = transitions(store, before.id) if current else []
            clock.advance(seconds=1)
            if wanted == current or current in ENDED:
                with pytest.raises(TransitionError) as refused:
                    set_status(store, before.id, wanted)
                assert (refused.value.current, refused.value.requested) == (current, wanted)
                assert before.id in refused.value.subject
                assert session_of(other, before.id) == before
                assert (transitions(other, before.id) if current else []) == written
            else:
                assert set_status(store, before.id, wanted) is True
                ended = clock() if wanted in ENDED else None
                expected = {"status": wanted, "ended_at": ended, "updated_at": clock()}
                if wanted == "running":
                    expected["started_at"] = clock()
                assert session_of(other, before.id) == before.model_copy(update=expected)
                (*earlier, row) = transitions(other, before.id)
                assert earlier == written
                assert (row.previous_status, row.status, row.created_at) == (current, wanted, clock())


def test_a_refused_change_leaves_the_transaction_usable(store: Any) -> None:
    make_session(store, "s", status="completed")
    with store.begin() as tx:
        for status in ("failed", "completed", "nonsense"):
            with pytest.raises(PersistError):
                tx.conversations.sessions.set_status("s", status)
        tx.conversations.sessions.update("s", name="still there")
    assert session_of(store, "s").name == "still there"


# ---------------------------------------------------------------- overrides


def test_an_override_leaves_the_end_with_a_justification_and_a_name(store: Any, clock: Any) -> None:
    make_session(store, "s", status="completed")
    clock.advance(seconds=1)
    assert set_status(store, "s", "failed", override="The gate lied.", actor="maria", reason="wrong exit code")
    found = session_of(store, "s")
    assert (found.status, found.status_reason_summary) == ("failed", "wrong exit code")
    row = transitions(store, "s")[-1]
    assert (row.previous_status, row.status, row.actor) == ("completed", "failed", "maria")
    assert "The gate lied." in row.metadata.values()


def test_an_override_may_make_it_run_again(store: Any, clock: Any) -> None:
    make_session(store, "s", status="failed", started_at=AT)
    assert session_of(store, "s").ended_at_is_approximate is True
    assert set_status(store, "s", "running", override="resumed by hand", actor="maria")
    found = session_of(store, "s")
    assert (found.status, found.ended_at, found.ended_at_is_approximate) == ("running", None, False)
    clock.advance(seconds=5)
    assert set_status(store, "s", "completed")
    assert (session_of(store, "s").ended_at, session_of(store, "s").ended_at_is_approximate) == (clock(), False)


def test_an_override_between_two_ends_keeps_the_instant_of_the_end(store: Any, clock: Any) -> None:
    make_session(store, "s", status="completed", ended_at=AT)
    assert set_status(store, "s", "failed", override="it was not", actor="maria")
    assert session_of(store, "s").ended_at == AT


def test_an_override_without_a_name_or_a_justification_is_refused(store: Any, raw: Raw) -> None:
    make_session(store, "s", status="completed")
    before = dump(raw)
    bad: list[dict[str, Any]] = [
        {"override": "because"},
        {"override": "because", "actor": ""},
        {"override": "because", "actor": 7},
        {"override": "", "actor": "maria"},
        {"override": " \n", "actor": "maria"},
        {"override": 1, "actor": "maria"},
        {"override": True, "actor": "maria"},
    ]
    with store.begin() as tx:
        for options in bad:
            with pytest.raises(InvalidValue) as refused:
                tx.conversations.sessions.set_status("s", "failed", **options)
            assert refused.value.path in ("override", "actor")
        with pytest.raises(TransitionError):
            tx.conversations.sessions.set_status("s", "failed", actor="maria")
        with pytest.raises(TransitionError):  # there is nothing to override
            tx.conversations.sessions.set_status("s", "completed", override="because", actor="maria")
    assert dump(raw) == before


# ---------------------------------------------------------------- compare and swap


def test_a_guard_that_misses_is_false_and_changes_nothing(store: Any, raw: Raw) -> None:
    """(c) 23"""
    make_session(store, "s", status="running")
    make_session(store, "none")
    before = dump(raw)
    assert set_status(store, "s", "completed", expected=["failed", None]) is False
    assert set_status(store, "s", "completed", expected=[]) is False
    assert set_status(store, "none", "completed", expected=STATUSES) is False
    assert dump(raw) == before
    assert set_status(store, "s", "completed", expected=("running",)) is True
    assert set_status(store, "none", "completed", expected={None}) is True


def test_a_guard_is_asked_before_the_table(store: Any, raw: Raw) -> None:
    """Whoever comes second with a guard is told False, not that it is over."""
    make_session(store, "s", status="completed")
    before = dump(raw)
    assert set_status(store, "s", "failed", expected=["running"]) is False
    assert set_status(store, "s", "failed", expected=["running"], override="because", actor="maria") is False
    with pytest.raises(TransitionError):
        set_status(store, "s", "failed", expected=["completed"])
    assert dump(raw) == before


def test_a_guard_is_a_list_of_statuses(store: Any) -> None:
    make_session(store, "s", status="running")
    with store.begin() as tx:
        for bad in ("running", ["ok"], [""], [1], 5, [["running"]], True):
            with pytest.raises(InvalidValue) as refused:
                tx.conversations.sessions.set_status("s", "completed", expected=bad)
            assert refused.value.path.startswith("expected")
    assert session_of(store, "s").status == "running"


# ---------------------------------------------------------------- who says so


def test_a_bad_status_source_or_reason_is_named(store: Any, raw: Raw) -> None:
    """(c) 16"""
    make_session(store, "s", status="running")
    before = dump(raw)
    bad: list[tuple[str, Any]] = [
        *[("status", word) for word in ["ok", "", "COMPLETED", None, 1, [1]]],
        *[("source", word) for word in ["human", "", "Executor", None, 1]],
        *[("reason", word) for word in [1, b"x", ["x"]]],
        *[("actor", word) for word in ["", 1, "a\x00b"]],
    ]
    with store.begin() as tx:
        for name, value in bad:
            with pytest.raises(InvalidValue) as refused:
                tx.conversations.sessions.set_status("s", **{"status": "completed", name: value})
            assert refused.value.path == name, (name, value)
    assert dump(raw) == before


def test_an_admin_may_fail_abort_and_cancel(store: Any) -> None:
    for status in STATUSES:
        for current in (None, "running"):
            id = make_session(store, status=current).id
            if status in ("failed", "aborted", "cancelled"):
                assert set_status(store, id, status, source="admin", actor="maria") is True
                assert transitions(store, id)[-1].source == "admin"
            elif status != current:
                with pytest.raises(InvalidValue):
                    set_status(store, id, status, source="admin", actor="maria")
                assert session_of(store, id).status == current


def test_an_admin_with_an_override_may_do_no_more(store: Any) -> None:
    make_session(store, "s", status="failed")
    with pytest.raises(InvalidValue):
        set_status(store, "s", "completed", source="admin", actor="maria", override="because")
    assert set_status(store, "s", "aborted", source="admin", actor="maria", override="because")
