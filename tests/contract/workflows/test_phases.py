"""Phases over their executions: which has to run, what it said, and how one is skipped."""

from typing import Any

import pytest

from persist.workflows.schemas import Outcome
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.making import (
    HARD_TEXT,
    NOT_BODIES,
    NOT_LABELS,
    NOT_OPTIONAL_LABELS,
    SKILL,
    TRIGGER,
    done,
    execution,
    finish,
    make_run,
    refused,
    refused_at,
    should_run,
    skip,
    start,
)


def phase_output(store: Any, run: str | None = None, *, skill: str = SKILL, trigger_id: str = TRIGGER) -> str | None:
    with store.read() as tx:
        text: str | None = tx.workflows.executions.phase_output(skill, trigger_id, workflow_run_id=run)
    return text


def say(store: Any, id: str, text: str) -> str:
    with store.begin() as tx:
        assert tx.workflows.executions.set_output(id, text)
    return id


# ---------------------------------------------------------------- should_run


def test_a_phase_that_never_ran_has_to(store: Any) -> None:
    assert should_run(store) == "run"
    assert should_run(store, "run_unknown") == "run"


@pytest.mark.parametrize("scoped", [False, True], ids=["trigger", "run"])
def test_running_comes_before_done_and_done_before_run(store: Any, scoped: bool) -> None:
    """(a)"""
    run = make_run(store).id if scoped else None
    done(store, success=False, workflow_run_id=run)
    assert should_run(store, run) == "run"
    done(store, workflow_run_id=run)
    done(store, success=False, workflow_run_id=run)
    assert should_run(store, run) == "done"
    running = start(store, workflow_run_id=run)
    assert should_run(store, run) == "running"
    finish(store, running, success=False)
    assert should_run(store, run) == "done"


def test_a_fresh_run_repeats_what_an_older_run_finished(store: Any) -> None:
    """(d) 20"""
    old, new = make_run(store).id, make_run(store).id
    done(store, workflow_run_id=old)
    assert should_run(store, new) == "run"
    assert should_run(store, old) == "done"
    assert should_run(store) == "done"


def test_executions_without_a_run_are_invisible_to_a_run(store: Any) -> None:
    """(a)"""
    run = make_run(store).id
    done(store)
    start(store)
    assert should_run(store, run) == "run"
    assert should_run(store) == "running"


def test_a_run_is_the_scope_whatever_the_trigger(store: Any) -> None:
    """(a): the scope is that run only"""
    run = make_run(store).id
    done(store, workflow_run_id=run, trigger_id="elsewhere#1")
    assert should_run(store, run) == "done"
    assert should_run(store) == "run"


def test_other_skills_and_triggers_do_not_count(store: Any) -> None:
    run = make_run(store).id
    start(store, skill="build:plan2", workflow_run_id=run)
    start(store, skill="Build:plan", workflow_run_id=run)
    start(store, trigger_id=TRIGGER + "0")
    assert (should_run(store), should_run(store, run)) == ("run", "run")


def test_running_and_completed_are_asked_by_trigger(store: Any) -> None:
    """(a)"""
    run = make_run(store).id

    def asked() -> tuple[bool, bool]:
        with store.read() as tx:
            verbs = tx.workflows.executions
            return verbs.is_running(SKILL, TRIGGER), verbs.is_completed(SKILL, TRIGGER)

    assert asked() == (False, False)
    id = start(store, workflow_run_id=run)
    assert asked() == (True, False)
    finish(store, id, success=False)
    assert asked() == (False, False)
    finish(store, id, success=True)
    assert asked() == (False, True)
    start(store)
    assert asked() == (True, True)


# ---------------------------------------------------------------- skip


def test_a_skipped_phase_still_has_to_run_and_is_not_broken(store: Any, other: Any) -> None:
    """(d) 16"""
    run = make_run(store).id
    row = skip(store, workflow_run_id=run, reason=HARD_TEXT)
    assert execution(other, row.id) == row
    assert (row.success, row.stop_reason, row.error, row.outcome) == (False, "skipped", HARD_TEXT, Outcome.SKIPPED)
    assert (row.trigger_id, row.skill, row.workflow_run_id) == (TRIGGER, SKILL, run)
    assert row.finished_at == row.started_at
    assert (should_run(store, run), should_run(store)) == ("run", "run")
    with store.read() as tx:
        assert tx.workflows.executions.output_text(row.id) is None


@each(
    ("trigger", "number"),
    [
        ("acme/site#42", 42),
        ("#7", 7),
        ("a#1#2", 2),
        ("acme/site", None),
        ("acme/site#", None),
        ("acme/site#42 ", None),
        ("acme/site#42\n", None),
        ("acme/site#4x", None),
        ("acme/site#-4", None),
        ("acme/site#٤", None),
        ("acme#42/site", None),
        ("acme/site#" + "9" * 40, None),
    ],
)
def test_the_issue_number_is_a_trailing_number(store: Any, trigger: str, number: int | None) -> None:
    """(a)"""
    assert skip(store, trigger).issue_number == number


def test_a_skipped_phase_takes_the_type_of_its_trigger(store: Any, clock: Any) -> None:
    start(store, trigger_type="webhook", skill="build:other")
    clock.advance(seconds=1)
    start(store, trigger_type="chat", skill="build:other")
    assert skip(store).trigger_type == "chat"


# ---------------------------------------------------------------- phase_output


def test_a_phase_said_what_its_newest_finished_execution_with_text_said(store: Any, clock: Any) -> None:
    """(a)"""
    assert phase_output(store) is None
    for text in ("first", "second"):
        say(store, done(store), text)
        clock.advance(seconds=1)
    done(store)
    clock.advance(seconds=1)
    say(store, start(store), "still running")
    assert phase_output(store) == "second"
    assert phase_output(store, skill="build:other") is None
    assert phase_output(store, trigger_id="other") is None


def test_a_failed_execution_with_text_counts_too(store: Any, clock: Any) -> None:
    say(store, done(store), "first")
    clock.advance(seconds=1)
    say(store, done(store, success=False), "")
    assert phase_output(store) == ""


def test_the_newest_is_by_start_and_ids_break_ties(store: Any, clock: Any) -> None:
    early = start(store)
    clock.advance(seconds=1)
    late = [start(store), start(store)]
    clock.advance(seconds=1)
    for id in (late[1], late[0], early):  # the oldest ends last
        say(store, id, id)
        finish(store, id)
    assert phase_output(store) == late[1]


def test_a_phase_output_of_a_run_is_that_runs(store: Any, clock: Any) -> None:
    one, two = make_run(store).id, make_run(store).id
    say(store, done(store, workflow_run_id=one), "of one")
    clock.advance(seconds=1)
    say(store, done(store), "of no run")
    assert phase_output(store, one) == "of one"
    assert phase_output(store, two) is None
    assert phase_output(store) == "of no run"


# ---------------------------------------------------------------- bad values


def test_phases_refuse_what_names_no_phase(store: Any, raw: Raw) -> None:
    id = done(store)
    before = execution(store, id)
    with store.begin() as tx:
        verbs = tx.workflows.executions
        scoped = [verbs.should_run, verbs.phase_output]
        for verb in [*scoped, verbs.is_running, verbs.is_completed]:
            refused_at(verb, 0, "skill", [*NOT_LABELS, None], SKILL, TRIGGER)
            refused_at(verb, 1, "trigger_id", [*NOT_LABELS, None], SKILL, TRIGGER)
        for verb in scoped:
            refused(verb, "workflow_run_id", NOT_OPTIONAL_LABELS, SKILL, TRIGGER)
        refused_at(verbs.consecutive_failures, 0, "skill", [*NOT_LABELS, None], SKILL)

        refused_at(tx.workflows.executions.skip, 0, "skill", [*NOT_LABELS, None], SKILL, TRIGGER, reason="r")
        refused_at(tx.workflows.executions.skip, 1, "trigger_id", [*NOT_LABELS, None], SKILL, TRIGGER, reason="r")
        refused(tx.workflows.executions.skip, "reason", [*NOT_BODIES, None], SKILL, TRIGGER)
        refused(tx.workflows.executions.skip, "workflow_run_id", NOT_OPTIONAL_LABELS, SKILL, TRIGGER, reason="r")

        refused_at(verbs.mark_stale, 0, "trigger_id", [*NOT_LABELS, None], TRIGGER)
        refused(verbs.mark_stale, "skill", NOT_OPTIONAL_LABELS, TRIGGER)
        refused(verbs.mark_stale, "reason", [*NOT_BODIES, None], TRIGGER)

        refused_at(verbs.veto_latest, 0, "skill", [*NOT_LABELS, None], SKILL, TRIGGER, "r")
        refused_at(verbs.veto_latest, 1, "trigger_id", [*NOT_LABELS, None], SKILL, TRIGGER, "r")
        refused_at(verbs.veto_latest, 2, "reason", [*NOT_BODIES, None], SKILL, TRIGGER, "r")
        refused(verbs.veto_latest, "workflow_run_id", NOT_OPTIONAL_LABELS, SKILL, TRIGGER, "r")

        assert verbs.get(id) == before
        tx.workflows.executions.skip(SKILL, TRIGGER, reason="r")
    assert raw.count("executions") == 2
