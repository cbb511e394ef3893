"""One execution: starting and reading it, what arrives while it runs, and what none of its verbs takes."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist.errors import PayloadTooLarge
from persist.settings import Settings
from persist.workflows.schemas import Execution, Outcome
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face
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


def test_a_started_execution_has_every_field_and_no_result(store: Any, other: Any) -> None:
    run = make_run(store)
    given: dict[str, Any] = {
        **{"trigger_type": "webhook", "trigger_id": TRIGGER, "skill": SKILL, "repo": "acme/site", "issue_number": 42},
        **{"workflow_run_id": run.id, "session_id": "log_0", "id": "mine"},
    }
    started = store.workflows.executions.start(**given)
    assert started == Execution(**{**dict.fromkeys(Execution.model_fields), **given, "started_at": STARTED})
    assert started.outcome is Outcome.RUNNING
    assert execution(other, "mine") == started
    assert other.workflows.executions.output_text("mine") is None


def test_what_is_omitted_at_the_start_is_absent(store: Any) -> None:
    found = execution(store, start(store))
    assert len(found.id) == 30
    assert found.id.startswith("exe_")
    assert (found.repo, found.issue_number, found.workflow_run_id, found.session_id) == (None, None, None, None)


def test_an_execution_whose_run_has_no_row_is_read_and_finished(store: Any, raw: Raw) -> None:
    """No foreign key, and older files name runs that are gone."""
    plant_execution(raw, "old", STARTED, workflow_run_id="run_gone")
    assert execution(store, "old").workflow_run_id == "run_gone"
    assert finish(store, "old")


def test_success_is_a_flag_in_the_row(store: Any, raw: Raw) -> None:
    """Tri-state: 1 and 0 on SQLite, a boolean on Postgres."""
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


def test_the_session_log_is_named_while_it_runs(store: Any) -> None:
    id = start(store)
    assert store.workflows.executions.set_session(id, "log_1")
    found = execution(store, id)
    assert (found.session_id, found.success, found.finished_at) == ("log_1", None, None)


@each("text", ["", "plain", HARD_TEXT, "é" * 100_000])
def test_any_output_text_comes_back_as_it_was(store: Any, other: Any, text: str) -> None:
    id = start(store)
    assert store.workflows.executions.set_output(id, text)
    assert other.workflows.executions.output_text(id) == text
    finish(store, id)
    assert other.workflows.executions.phase_output(SKILL, TRIGGER) == text


def test_the_last_output_text_counts(store: Any) -> None:
    id = start(store)
    with store.begin() as tx:
        assert tx.workflows.executions.set_output(id, "first")
        assert tx.workflows.executions.set_output(id, "second")
    assert store.workflows.executions.output_text(id) == "second"


def test_a_row_of_an_older_program_reads_whole(store: Any, raw: Raw) -> None:
    """A finished row without success is neither running nor a success."""
    at = STARTED - timedelta(days=400)
    plant_execution(raw, "old", at, finished_at=at, success=None, output_text="kept")
    found = execution(store, "old")
    assert (found.success, found.started_at, found.finished_at, found.outcome) == (None, at, at, Outcome.FAILED)


# Finishing an execution: what becomes what is given, and what is kept where nothing is.


MEASURED: dict[str, Any] = {
    "error": "no error, a note",
    "turns": 7,
    "duration_ms": 1234,
    "cost_usd": 0.25,
    "input_tokens": 100,
    "output_tokens": 20,
    "cache_creation_input_tokens": 3,
    "cache_read_input_tokens": 5,
    "api_duration_ms": 900,
    "session_id": "log_1",
    "stop_reason": "end_turn",
    "extension_status": {"git": {"clean": True}, "note": "é😀"},
}
OVERWRITTEN = ("error", "turns", "duration_ms")
KEPT = tuple(name for name in MEASURED if name not in OVERWRITTEN)


def test_finish_keeps_everything_it_is_given(store: Any, other: Any, clock: Any) -> None:
    id = start(store, repo="acme/site", issue_number=42)
    before = execution(store, id)
    ended = clock.advance(seconds=61)
    assert finish(store, id, success=True, **MEASURED)
    after = execution(other, id)
    assert after == before.model_copy(update={**MEASURED, "success": True, "finished_at": ended})
    assert type(after.cost_usd) is float


@each(
    ("success", "stop_reason", "outcome"),
    [
        (True, None, Outcome.SUCCEEDED),
        (True, "skipped", Outcome.SUCCEEDED),
        (False, "skipped", Outcome.SKIPPED),
        (False, "error_quota", Outcome.DEFERRED),
        (False, "max_turns", Outcome.FAILED),
        (False, None, Outcome.FAILED),
    ],
)
def test_the_outcome_comes_from_success_and_stop_reason(
    store: Any, success: bool, stop_reason: str | None, outcome: Outcome
) -> None:
    """success=False is not the same as broken."""
    id = done(store, success=success, result={"stop_reason": stop_reason})
    assert execution(store, id).outcome is outcome


@on_one_face
@each("name", KEPT)
def test_a_second_finish_keeps_what_it_omits(store: Any, name: str) -> None:
    id = done(store, result=MEASURED)
    assert finish(store, id, success=False, **{key: value for key, value in MEASURED.items() if key != name})
    assert getattr(execution(store, id), name) == MEASURED[name]


@each("name", OVERWRITTEN)
def test_a_second_finish_empties_what_it_omits(store: Any, name: str) -> None:
    id = done(store, result=MEASURED)
    assert finish(store, id, success=True, **{key: value for key, value in MEASURED.items() if key != name})
    assert getattr(execution(store, id), name) is None


def test_the_last_finish_counts(store: Any, clock: Any) -> None:
    id = done(store, success=False, result=MEASURED)
    ended = clock.advance(seconds=5)
    other_values = {
        "error": "later",
        "turns": 0,
        "duration_ms": 0,
        "cost_usd": 0.0,
        "input_tokens": 0,
        "output_tokens": 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "api_duration_ms": 0,
        "session_id": "log_2",
        "stop_reason": "stop",
        "extension_status": [],
    }
    assert other_values.keys() == MEASURED.keys()
    assert finish(store, id, success=True, **other_values)
    found = execution(store, id)
    assert {name: getattr(found, name) for name in other_values} == other_values
    assert (found.success, found.finished_at) == (True, ended)


def test_an_extension_status_is_stored_as_json_once(store: Any, raw: Raw) -> None:
    """Never double-encoded."""
    id = done(store, result={"extension_status": {"é": [1]}})
    assert raw.json("SELECT extension_status FROM executions WHERE id = ?", id) == {"é": [1]}


# What the verbs of executions refuse: unknown ids, writes in a reading transaction, values that cannot be kept.


def test_an_unknown_execution_is_not_written(store: Any, raw: Raw) -> None:
    with store.begin() as tx:
        verbs = tx.workflows.executions
        assert not verbs.set_session("gone", "log")
        assert not verbs.finish("gone", success=True)
        assert not verbs.set_output("gone", "text")
    assert raw.count("executions") == 0


def test_the_largest_numbers_come_back(store: Any) -> None:
    maximum = 2**63 - 1
    result = {"turns": maximum, "duration_ms": maximum, "input_tokens": maximum, "cost_usd": 1e300}
    found = execution(store, done(store, issue_number=maximum, result=result))
    assert found.issue_number == maximum
    assert {name: getattr(found, name) for name in result} == result


def test_oversized_text_is_refused_whole(open_store: Any) -> None:
    store = open_store(settings=Settings(max_text_bytes=10))
    id = start(store)
    with store.begin() as tx:
        verbs = tx.workflows.executions
        writes: list[Callable[[str], Any]] = [
            lambda text: verbs.set_output(id, text),
            lambda text: verbs.finish(id, success=False, error=text),
            lambda text: tx.workflows.executions.skip(SKILL, TRIGGER, reason=text),
            lambda text: verbs.mark_stale(TRIGGER, reason=text),
            lambda text: verbs.veto_latest(SKILL, TRIGGER, text),
        ]
        for write in writes:
            with pytest.raises(PayloadTooLarge) as caught:
                write("é" * 6)
            assert (caught.value.size, caught.value.limit) == (12, 10)
        assert verbs.output_text(id) is None
        assert verbs.get(id).success is None
        assert verbs.set_output(id, "é" * 5)
        assert len(verbs.list().items) == 1


def test_an_oversized_extension_status_is_refused_whole(open_store: Any) -> None:
    store = open_store(settings=Settings(max_json_bytes=100))
    id = start(store)
    with store.begin() as tx:
        with pytest.raises(PayloadTooLarge):
            tx.workflows.executions.finish(id, success=True, extension_status="x" * 99)
        assert tx.workflows.executions.get(id).success is None
        assert tx.workflows.executions.finish(id, success=True, extension_status="x" * 98)
