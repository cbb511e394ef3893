"""What the status of a session may become, who may say so, and what a guard that misses does."""

from datetime import timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue, TransactionAborted, TransitionError
from tests.contract.conftest import Raw
from tests.contract.conversations.making import (
    AT,
    DAY,
    ENDED,
    STATUSES,
    change,
    delete_session,
    dump,
    fork,
    make_branch,
    make_session,
    say,
    session_of,
    set_status,
    transitions,
    without_history,
)


def test_what_may_follow_what(store: Any, other: Any, clock: Any) -> None:
    """None and running may become anything else; what has ended stays so."""
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


def test_a_guard_that_misses_is_false_and_changes_nothing(store: Any, raw: Raw) -> None:
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


# Every change of a status leaves a row of history, beginning with the creation, or leaves nothing.


def test_every_change_is_a_row_of_history_oldest_first(store: Any, other: Any, clock: Any) -> None:
    make_session(store, "s", status="running")
    set_status(store, "s", "timed_out", reason="30 minutes \x00 \ud83d", source="system", actor="watchdog")
    clock.advance(seconds=60)
    set_status(store, "s", "running", source="agent", actor="maria", override="more time")
    rows = transitions(other, "s")
    assert [(row.previous_status, row.status, row.source, row.actor) for row in rows] == [
        (None, "running", "executor", None),
        ("running", "timed_out", "system", "watchdog"),
        ("timed_out", "running", "agent", "maria"),
    ]
    assert [row.reason_summary for row in rows] == [None, "30 minutes \x00 \ud83d", None]
    assert {(row.entity_type, row.entity_id) for row in rows} == {("session", "s")}
    assert (rows[1].created_at, rows[2].created_at) == (rows[0].created_at, clock())


def test_the_reason_on_the_session_is_that_of_its_last_change(store: Any, raw: Raw) -> None:
    """Of what another program left there nothing stays beside a status it does not explain."""
    make_session(store, "s", status="running")
    raw.rows("UPDATE sessions SET status_reason_code = 'old', status_evidence_refs = '[\"file\"]' WHERE id = 's'")
    assert set_status(store, "s", "failed", reason="boom")
    found = session_of(store, "s")
    assert (found.status_reason_code, found.status_reason_summary, found.status_evidence_refs) == (None, "boom", None)
    assert set_status(store, "s", "aborted", override="because", actor="maria")
    assert session_of(store, "s").status_reason_summary is None


def test_codes_and_evidence_are_kept_with_the_reason(store: Any, other: Any) -> None:
    make_session(store, "s", status="running")
    refs = [{"kind": "log", "path": "run.log", "line": 7}, "trace-1"]
    assert set_status(store, "s", "failed", reason="boom", reason_code="tool.crashed", evidence_refs=refs)
    found = session_of(other, "s")
    assert (found.status_reason_code, found.status_reason_summary, found.status_evidence_refs) == ("tool.crashed", "boom", refs)
    last = transitions(other, "s")[-1]
    assert (last.reason_code, last.reason_summary, last.evidence_refs) == ("tool.crashed", "boom", refs)
    with store.begin() as tx:
        for name, value in (("reason_code", ""), ("reason_code", 1), ("evidence_refs", float("nan")), ("evidence_refs", {1})):
            with pytest.raises(InvalidValue) as refused:
                tx.conversations.sessions.set_status("s", "aborted", override="x", actor="maria", **{name: value})
            assert refused.value.path.startswith(name)
    assert session_of(other, "s") == found


def test_histories_are_apart_and_outlive_their_session(store: Any) -> None:
    make_session(store, "s", status="running")
    make_session(store, "t", status="completed")
    branch = make_branch(store, "s")
    assert store.conversations.branches.finalize(branch, "failed")
    assert [row.status for row in transitions(store, "s")] == ["running"]
    delete_session(store, "s")
    assert [row.status for row in transitions(store, "s")] == ["running"]
    assert [row.status for row in transitions(store, "t")] == ["completed"]


def test_a_session_created_as_ended_ended_at_the_latest_instant_known(store: Any, clock: Any) -> None:
    start, late = AT + DAY, AT + 2 * DAY
    known: list[tuple[dict[str, Any], Any]] = [
        ({}, clock()),
        ({"created_at": AT}, AT),
        ({"created_at": AT, "started_at": start}, start),
        ({"created_at": AT, "started_at": start, "updated_at": late}, late),
        ({"created_at": late, "started_at": start, "updated_at": AT}, late),
    ]
    for status in ENDED:
        for given, at in known:
            made = make_session(store, status=status, **given)
            assert (made.ended_at, made.ended_at_is_approximate) == (at, True)
        told = make_session(store, status=status, created_at=late, ended_at=AT)
        assert (told.ended_at, told.ended_at_is_approximate) == (AT, False)
    for unended in ("running", None):
        made = make_session(store, status=unended, created_at=AT, updated_at=late)
        assert (made.ended_at, made.ended_at_is_approximate) == (None, False)


def test_a_session_that_ends_keeps_an_end_that_was_told_before(store: Any, clock: Any) -> None:
    make_session(store, "s", status="running")
    change(store, "s", ended_at=AT)
    clock.advance(seconds=60)
    set_status(store, "s", "completed")
    assert session_of(store, "s").ended_at == AT


def test_a_history_that_cannot_be_written_leaves_the_status(store: Any, raw: Raw) -> None:
    make_session(store, "s", status="running")
    before = dump(raw)
    with without_history(raw):
        with pytest.raises(Exception, match="status_transitions"):  # the driver's words, of a table that is never missing
            set_status(store, "s", "completed", reason="done")
        with pytest.raises(Exception, match="status_transitions"):
            change(store, "s", status="completed", name="n")
        with pytest.raises(TransactionAborted), store.begin() as tx:
            go_on_after_a_failure(tx)
    assert dump(raw) == before


def go_on_after_a_failure(tx: Any) -> None:
    with pytest.raises(Exception, match="status_transitions"):
        tx.conversations.sessions.set_status("s", "completed")
    tx.conversations.sessions.get("s")


def test_a_change_of_status_brings_the_published_array_up_to_date(store: Any, raw: Raw) -> None:
    make_session(store, "s", status="running")
    branch = make_branch(store, "s")
    say(store, branch, "m1", "m2")
    fork(store, branch)
    pool = session_of(store, "s").progression_id
    set_status(store, "s", "completed")
    assert raw.json("SELECT collection FROM progressions WHERE id = ?", pool) == ["m1", "m2"]


def test_the_order_is_that_of_the_changes_whatever_the_clocks_of_their_writers_say(store: Any, other: Any, clock: Any) -> None:
    """Two handles in one instant, and one whose clock is behind."""
    make_session(store, "s", status="running")
    for number, handle in enumerate([other, store, other, store, other]):
        set_status(handle, "s", ["failed", "running"][number % 2], override="again", actor="maria")
    clock.advance(seconds=-60)
    set_status(store, "s", "aborted", override="at last", actor="maria")
    rows = transitions(store, "s")
    assert [row.status for row in rows] == ["running", "failed", "running", "failed", "running", "failed", "aborted"]
    assert [row.previous_status for row in rows[1:]] == [row.status for row in rows[:-1]]
    assert rows[-1].created_at - rows[0].created_at < timedelta(milliseconds=1)
