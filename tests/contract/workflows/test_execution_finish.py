"""Finishing an execution: what becomes what is given, and what is kept where nothing is."""

from typing import Any

from persist.workflows.schemas import Outcome
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face
from tests.contract.workflows.making import HARD_TEXT, done, execution, finish, start

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
    """(d) 19"""
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
    """(c): success=False is not the same as broken"""
    id = done(store, success=success, result={"stop_reason": stop_reason})
    assert execution(store, id).outcome is outcome


@on_one_face
@each("name", KEPT)
def test_a_second_finish_keeps_what_it_omits(store: Any, name: str) -> None:
    """(d) 21"""
    id = done(store, result=MEASURED)
    assert finish(store, id, success=False, **{key: value for key, value in MEASURED.items() if key != name})
    assert getattr(execution(store, id), name) == MEASURED[name]


@each("name", OVERWRITTEN)
def test_a_second_finish_empties_what_it_omits(store: Any, name: str) -> None:
    """(d) 21"""
    id = done(store, result=MEASURED)
    assert finish(store, id, success=True, **{key: value for key, value in MEASURED.items() if key != name})
    assert getattr(execution(store, id), name) is None


def test_the_last_finish_counts(store: Any, clock: Any) -> None:
    """(a): no guard"""
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


def test_finish_touches_that_execution_alone(store: Any) -> None:
    first, second = start(store), start(store)
    before = execution(store, second)
    finish(store, first, **MEASURED)
    assert execution(store, second) == before


@on_one_face
@each("value", [{"a": {"b": [1, None, -0.5]}}, [], {}, "text", 0, False, 2**64 - 1, HARD_TEXT])
def test_an_extension_status_is_any_json(store: Any, value: Any) -> None:
    """Settled"""
    id = done(store, result={"extension_status": value})
    found = execution(store, id).extension_status
    assert (type(found), found) == (type(value), value)


def test_an_extension_status_is_stored_as_json_once(store: Any, raw: Raw) -> None:
    """(a): never double-encoded"""
    id = done(store, result={"extension_status": {"é": [1]}})
    assert raw.json("SELECT extension_status FROM executions WHERE id = ?", id) == {"é": [1]}
