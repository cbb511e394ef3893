"""Executions found by what their error says, and by the run that they belong to."""

from datetime import timedelta
from typing import Any

import pytest

from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face
from tests.contract.workflows.making import (
    SKILL,
    TRIGGER,
    done,
    executions,
    failed_with,
    ids,
    make_run,
    pages,
    plant_execution,
    start,
)


def for_run(store: Any, run_id: str) -> list[str]:
    return ids(store.workflows.executions.for_run(run_id))


@on_one_face
@each("special", ["%", "_", "\\", "!", "'", '"', "%%", "!_", "\\%", "[a]", "?", "%s", ":x"])
def test_what_is_searched_for_matches_literally(store: Any, special: str) -> None:
    found = failed_with(store, f"a{special}b")
    for decoy in ("axb", "ab", "axxb", "a", ""):
        failed_with(store, decoy)
    assert executions(store, error_contains=f"a{special}b") == [found]
    assert executions(store, error_contains=special) == [found]


@on_one_face
@each(
    ("error", "sought", "matches"),
    [
        ("Connection RESET by peer", "reset", True),
        ("connection reset", "RESET", True),
        ("Übung", "übung", False),
        ("Übung", "ÜBUNG", True),
        ("É", "é", False),
        ("é", "e\u0301", False),
        ("\u0130stanbul", "i", False),
        ("\u212a", "k", False),
        ("stra\u00dfe", "STRASSE", False),
        ("a\nb", "a\nb", True),
        (" a ", " A ", True),
        ("😀 boom", "BOOM", True),
        ("boom", "boom!", False),
    ],
)
def test_ascii_letters_match_in_either_case_and_no_others(store: Any, error: str, sought: str, matches: bool) -> None:
    id = failed_with(store, error)
    assert (id in executions(store, error_contains=sought)) is matches


@each("sought", ["before", "AFTER", "after \ufdd0 too"])
def test_text_behind_what_a_database_refuses_is_found(store: Any, sought: str) -> None:
    id = failed_with(store, "before \x00 \ud83d after \ufdd0 too")
    assert id in executions(store, error_contains=sought)


def test_an_execution_without_error_is_never_found(store: Any) -> None:
    start(store)
    failed_with(store, None)
    failed_with(store, "")
    assert executions(store, error_contains="n") == []


def test_a_search_goes_on_over_pages_and_with_other_filters(store: Any, clock: Any) -> None:
    made = []
    for number in range(9):
        clock.advance(seconds=number % 2)
        made.append(done(store, skill=f"s{number % 2}", result={"error": "Boom_1" if number % 3 else "boom"}))
    expected = [id for number, id in enumerate(made) if number % 3][::-1]
    assert [id for page in pages(store, error_contains="BOOM_", limit=2) for id in page] == expected
    assert executions(store, error_contains="boom_", skill="s1") == [id for id in expected if made.index(id) % 2]


def test_a_runs_executions_are_oldest_first(store: Any, clock: Any) -> None:
    run, other = make_run(store).id, make_run(store).id
    made = []
    for number in range(6):
        clock.advance(seconds=number % 2)
        made.append(start(store, workflow_run_id=run, skill=f"build:{number % 2}"))
        start(store, workflow_run_id=other)
    assert for_run(store, run) == made


def test_a_runs_own_executions_count_whatever_their_trigger_and_skill(store: Any) -> None:
    run = make_run(store).id
    made = [start(store, workflow_run_id=run, trigger_id="other", skill=skill) for skill in ("chat", "lint:x", SKILL)]
    assert for_run(store, run) == made


def test_rows_of_older_files_are_joined_by_trigger_and_workflow(store: Any, raw: Raw, clock: Any) -> None:
    run = make_run(store)
    at = run.started_at - timedelta(days=1)
    legacy = [plant_execution(raw, f"old{number}", at + timedelta(hours=number), skill=f"build:{number}") for number in range(3)]
    plant_execution(raw, "other trigger", at, trigger_id=TRIGGER + "0")
    plant_execution(raw, "other workflow", at, skill="builds:plan")
    plant_execution(raw, "chat", at, skill="chat")
    plant_execution(raw, "no phase", at, skill="build")
    plant_execution(raw, "other run", at, workflow_run_id="run_gone")
    own = start(store, workflow_run_id=run.id)
    assert for_run(store, run.id) == [*legacy, own]


@on_one_face
@pytest.mark.parametrize(
    ("workflow", "decoys"),
    [
        ("a_b", ["axb:p", "a%b:p", "ab:p"]),
        ("a%b", ["axb:p", "axxb:p", "ab:p", "a_b:p"]),
        ("%", ["x:p", "xx:p"]),
        ("_", ["x:p"]),
        ("a!b", ["a!!b:p", "ab:p"]),
        ("a\\b", ["a\\\\b:p", "ab:p"]),
        ("build", ["Build:p", "BUILD:p"]),
        ("BUILD", ["build:p"]),
        ("übung", ["Übung:p"]),
    ],
)
def test_a_workflows_name_is_no_pattern(store: Any, raw: Raw, workflow: str, decoys: list[str]) -> None:
    run = make_run(store, workflow)
    own = plant_execution(raw, "own", run.started_at, skill=f"{workflow}:p")
    for number, decoy in enumerate(decoys):
        plant_execution(raw, f"decoy{number}", run.started_at, skill=decoy)
    assert for_run(store, run.id) == [own]
