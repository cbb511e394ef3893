"""Phases over their executions: which has to run, what it said, and how one is skipped."""

from datetime import timedelta
from typing import Any

import pytest

from persist.workflows.schemas import Outcome
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.making import (
    HARD_TEXT,
    SKILL,
    TRIGGER,
    done,
    execution,
    finish,
    make_run,
    plant_execution,
    should_run,
    skip,
    start,
)


def phase_output(store: Any, run: str | None = None, *, skill: str = SKILL, trigger_id: str = TRIGGER) -> str | None:
    text: str | None = store.workflows.executions.phase_output(skill, trigger_id, workflow_run_id=run)
    return text


def say(store: Any, id: str, text: str) -> str:
    assert store.workflows.executions.set_output(id, text)
    return id


def test_a_phase_that_never_ran_has_to(store: Any) -> None:
    assert should_run(store) == "run"
    assert should_run(store, "run_unknown") == "run"


@pytest.mark.parametrize("scoped", [False, True], ids=["trigger", "run"])
def test_running_comes_before_done_and_done_before_run(store: Any, scoped: bool) -> None:
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
    old, new = make_run(store).id, make_run(store).id
    done(store, workflow_run_id=old)
    assert should_run(store, new) == "run"
    assert should_run(store, old) == "done"
    assert should_run(store) == "done"


def test_executions_without_a_run_are_invisible_to_a_run(store: Any) -> None:
    run = make_run(store).id
    done(store)
    start(store)
    assert should_run(store, run) == "run"
    assert should_run(store) == "running"


def test_a_run_is_the_scope_whatever_the_trigger(store: Any) -> None:
    """The scope is that run only."""
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


def test_a_skipped_phase_still_has_to_run_and_is_not_broken(store: Any, other: Any) -> None:
    run = make_run(store).id
    row = skip(store, workflow_run_id=run, reason=HARD_TEXT)
    assert execution(other, row.id) == row
    assert (row.success, row.stop_reason, row.error, row.outcome) == (False, "skipped", HARD_TEXT, Outcome.SKIPPED)
    assert (row.trigger_id, row.skill, row.workflow_run_id) == (TRIGGER, SKILL, run)
    assert row.finished_at == row.started_at
    assert (should_run(store, run), should_run(store)) == ("run", "run")
    assert store.workflows.executions.output_text(row.id) is None


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
    assert skip(store, trigger).issue_number == number


def test_a_skipped_phase_takes_the_type_of_its_trigger(store: Any, clock: Any) -> None:
    start(store, trigger_type="webhook", skill="build:other")
    clock.advance(seconds=1)
    start(store, trigger_type="chat", skill="build:other")
    assert skip(store).trigger_type == "chat"


def test_a_phase_said_what_its_newest_finished_execution_with_text_said(store: Any, clock: Any) -> None:
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


# What is said of a phase afterwards: given up as stale, vetoed, failed so often in a row.


def veto(store: Any, run: str | None = None, *, skill: str = SKILL, trigger_id: str = TRIGGER, reason: str = "vetoed") -> bool:
    return bool(store.workflows.executions.veto_latest(skill, trigger_id, reason, workflow_run_id=run))


def mark_stale(store: Any, trigger_id: str = TRIGGER, **options: Any) -> int:
    return int(store.workflows.executions.mark_stale(trigger_id, **options))


def failures(store: Any, skill: str = SKILL) -> int:
    return int(store.workflows.executions.consecutive_failures(skill))


def test_unfinished_executions_of_the_trigger_are_given_up(store: Any, clock: Any) -> None:
    failed = [start(store), start(store, skill="build:test", workflow_run_id=make_run(store).id)]
    kept = [done(store), done(store, success=False), start(store, trigger_id="other")]
    before = [execution(store, id) for id in kept]
    at = clock.advance(seconds=60)
    assert mark_stale(store) == 2
    for id in failed:
        found = execution(store, id)
        assert (found.success, found.error, found.finished_at) == (False, "stale: container no longer running", at)
    assert [execution(store, id) for id in kept] == before
    assert mark_stale(store) == 0


def test_only_one_skill_is_given_up_for_a_reason_of_its_own(store: Any) -> None:
    one, two = start(store), start(store, skill="build:test")
    assert mark_stale(store, skill=SKILL, reason=HARD_TEXT) == 1
    assert execution(store, one).error == HARD_TEXT
    assert execution(store, two).success is None


@pytest.mark.parametrize("scoped", [False, True], ids=["trigger", "run"])
def test_a_veto_flips_the_newest_alone(store: Any, clock: Any, scoped: bool) -> None:
    run = make_run(store).id if scoped else None
    first = done(store, workflow_run_id=run, result={"turns": 3})
    clock.advance(seconds=1)
    second = done(store, workflow_run_id=run, result={"turns": 4, "stop_reason": "end_turn"})
    before = [execution(store, first), execution(store, second)]
    clock.advance(seconds=1)
    assert veto(store, run, reason=HARD_TEXT)
    assert execution(store, first) == before[0]
    assert execution(store, second) == before[1].model_copy(update={"success": False, "error": HARD_TEXT})
    assert should_run(store, run) == "done"  # the first one still is
    assert veto(store, run)
    assert execution(store, first) == before[0]


def test_the_newest_of_one_instant_is_the_last_that_started(store: Any) -> None:
    first, second = done(store), done(store)
    assert veto(store)
    assert [execution(store, id).success for id in (first, second)] == [True, False]


def test_a_veto_stays_in_its_scope(store: Any, clock: Any) -> None:
    one, two = make_run(store).id, make_run(store).id
    of_one = done(store, workflow_run_id=one)
    clock.advance(seconds=1)
    newer = [done(store, workflow_run_id=two), done(store), done(store, skill="build:test", workflow_run_id=one)]
    assert veto(store, one)
    assert execution(store, of_one).success is False
    assert [execution(store, id).success for id in newer] == [True, True, True]


def test_nothing_to_veto_is_said(store: Any) -> None:
    id = done(store)
    assert not veto(store, skill="build:test")
    assert not veto(store, trigger_id="other")
    assert not veto(store, make_run(store).id)
    assert execution(store, id).success is True


@each(
    ("results", "streak"),
    [([], 0), ([True], 0), ([True, False, False], 2), ([False, False, True], 0), ([False, True, False], 1), ([False] * 13, 10)],
)
def test_failures_are_counted_from_the_newest(store: Any, clock: Any, results: list[bool], streak: int) -> None:
    """At most ten are looked at."""
    for success in results:
        done(store, success=success)
        clock.advance(seconds=1)
    start(store)
    done(store, skill="build:test")
    assert failures(store) == streak


def test_the_newest_failure_is_by_start_and_ids_break_ties(store: Any, clock: Any) -> None:
    early = start(store)
    clock.advance(seconds=1)
    late = [start(store), start(store)]
    for id, success in ((late[1], False), (late[0], True), (early, False)):
        clock.advance(seconds=1)
        finish(store, id, success=success)
    assert failures(store) == 1


@pytest.mark.parametrize("stop_reason", ["skipped", "error_quota"])
def test_what_was_not_tried_is_no_failure(store: Any, clock: Any, stop_reason: str) -> None:
    done(store, success=True)
    for _ in range(12):
        clock.advance(seconds=1)
        done(store, success=False, result={"stop_reason": stop_reason})
    assert failures(store) == 0
    clock.advance(seconds=1)
    done(store, success=False, result={"stop_reason": "error"})
    clock.advance(seconds=1)
    done(store, success=False, result={"stop_reason": stop_reason})
    assert failures(store) == 1


def test_a_row_that_ended_without_success_or_failure_ends_the_streak(store: Any, raw: Raw, clock: Any) -> None:
    """Stop at the first that is not False."""
    done(store, success=False)
    at = clock.advance(seconds=1)
    plant_execution(raw, "odd", at, finished_at=at, success=None)
    clock.advance(seconds=1)
    done(store, success=False)
    assert failures(store) == 1


def test_every_skill_has_a_streak_of_its_own_over_all_triggers(store: Any, clock: Any) -> None:
    for number in range(4):
        done(store, success=False, trigger_id=f"t{number}", skill=("a:x", "b:x")[number % 2])
        clock.advance(delta=timedelta(days=1))
    assert (failures(store, "a:x"), failures(store, "b:x"), failures(store, "a")) == (2, 2, 0)
