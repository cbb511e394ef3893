"""One execution: starting and reading it, what arrives while it runs, and what none of its verbs takes."""

from datetime import timedelta
from typing import Any

import pytest

from persist.errors import Conflict, NotFound
from persist.workflows.schemas import Execution, Outcome
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.making import (
    HARD_TEXT,
    SKILL,
    STARTED,
    TRIGGER,
    done,
    execution,
    finish,
    make_run,
    plant_execution,
    start,
)

# ---------------------------------------------------------------- starting


def test_a_started_execution_has_every_field_and_no_result(store: Any, other: Any) -> None:
    """(d) 19"""
    run = make_run(store)
    with store.begin() as tx:
        started = tx.workflows.executions.start(
            trigger_type="webhook",
            trigger_id=TRIGGER,
            skill=SKILL,
            repo="acme/site",
            issue_number=42,
            workflow_run_id=run.id,
            session_id="log_0",
            id="mine",
        )
    assert started == Execution(
        id="mine",
        trigger_type="webhook",
        trigger_id=TRIGGER,
        skill=SKILL,
        repo="acme/site",
        issue_number=42,
        started_at=STARTED,
        finished_at=None,
        success=None,
        error=None,
        turns=None,
        duration_ms=None,
        session_id="log_0",
        cost_usd=None,
        input_tokens=None,
        cache_creation_input_tokens=None,
        cache_read_input_tokens=None,
        output_tokens=None,
        api_duration_ms=None,
        stop_reason=None,
        workflow_run_id=run.id,
        idempotency_key=None,
        extension_status=None,
    )
    assert started.outcome is Outcome.RUNNING
    assert execution(other, "mine") == started
    with other.read() as tx:
        assert tx.workflows.executions.output_text("mine") is None


def test_what_is_omitted_at_the_start_is_absent(store: Any) -> None:
    found = execution(store, start(store))
    assert len(found.id) == 30
    assert found.id.startswith("exe_")
    assert (found.repo, found.issue_number, found.workflow_run_id, found.session_id) == (None, None, None, None)


def test_an_id_is_taken_once(store: Any) -> None:
    start(store, id="mine", skill="first")
    with pytest.raises(Conflict):
        start(store, id="mine", skill="second")
    assert execution(store, "mine").skill == "first"


def test_an_execution_of_an_unknown_run_is_refused(store: Any) -> None:
    with store.begin() as tx:
        with pytest.raises(NotFound, match="run_gone"):
            tx.workflows.executions.start(trigger_type="t", trigger_id="t", skill="chat", workflow_run_id="run_gone")
        run = tx.workflows.runs.create("build", trigger_id="t", current_phase="p")
        made = tx.workflows.executions.start(trigger_type="t", trigger_id="t", skill="chat", workflow_run_id=run.id)
    assert execution(store, made.id).workflow_run_id == run.id


def test_an_execution_whose_run_has_no_row_is_read_and_finished(store: Any, raw: Raw) -> None:
    """(a): no foreign key, and older files name runs that are gone"""
    plant_execution(raw, "old", STARTED, workflow_run_id="run_gone")
    assert execution(store, "old").workflow_run_id == "run_gone"
    assert finish(store, "old")


def test_success_is_a_flag_in_the_row(store: Any, raw: Raw) -> None:
    """(a): tri-state; design 5: 1 and 0 on SQLite, a boolean on Postgres"""
    rows = [start(store), done(store, success=True), done(store, success=False)]
    found = [raw.value("SELECT success FROM executions WHERE id = ?", id) for id in rows]
    expected: list[Any] = [None, 1, 0] if raw.is_sqlite else [None, True, False]
    assert [(type(value), value) for value in found] == [(type(value), value) for value in expected]
    assert [execution(store, id).success for id in rows] == [None, True, False]


def test_instants_are_kept_in_the_published_form(store: Any, raw: Raw) -> None:
    id = done(store)
    for column in ("started_at", "finished_at"):
        value = raw.value(f"SELECT {column} FROM executions WHERE id = ?", id)
        assert value == ("2026-01-02T03:04:05.678Z" if raw.is_sqlite else STARTED)


# ---------------------------------------------------------------- what arrives while it runs, and its text


def test_the_session_log_is_named_while_it_runs(store: Any) -> None:
    id = start(store)
    with store.begin() as tx:
        assert tx.workflows.executions.set_session(id, "log_1")
    found = execution(store, id)
    assert (found.session_id, found.success, found.finished_at) == ("log_1", None, None)


@each("text", ["", "plain", HARD_TEXT, "é" * 100_000])
def test_any_output_text_comes_back_as_it_was(store: Any, other: Any, text: str) -> None:
    id = start(store)
    with store.begin() as tx:
        assert tx.workflows.executions.set_output(id, text)
    with other.read() as tx:
        assert tx.workflows.executions.output_text(id) == text
    finish(store, id)
    with other.read() as tx:
        assert tx.workflows.executions.phase_output(SKILL, TRIGGER) == text


def test_the_last_output_text_counts(store: Any) -> None:
    id = start(store)
    with store.begin() as tx:
        assert tx.workflows.executions.set_output(id, "first")
        assert tx.workflows.executions.set_output(id, "second")
    with store.read() as tx:
        assert tx.workflows.executions.output_text(id) == "second"


def test_errors_are_any_text(store: Any) -> None:
    id = done(store, success=False, result={"error": HARD_TEXT})
    assert execution(store, id).error == HARD_TEXT


# ---------------------------------------------------------------- rows of other programs


def test_a_row_of_an_older_program_reads_whole(store: Any, raw: Raw) -> None:
    """A finished row without success is neither running nor a success."""
    at = STARTED - timedelta(days=400)
    plant_execution(raw, "old", at, finished_at=at, success=None, output_text="kept")
    found = execution(store, "old")
    assert (found.success, found.started_at, found.finished_at, found.outcome) == (None, at, at, Outcome.FAILED)
