"""Side effects of a run: each is done once, and what it returned is known after a crash."""

from datetime import timedelta
from typing import Any

import pytest

from persist.errors import Conflict, EffectUnknown, InvalidValue, LeaseLost, NotFound, PayloadTooLarge
from tests.async_portal import Portal
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.faces import every_way
from tests.contract.workflows.scenes import NESTED, Around, do, held, make

HARD = {"url": "x\x00\ud83d", "numbers": [0.5, 2**63], "none": None, "z": 1, "a": 2}


def test_an_effect_is_begun_done_and_then_remembered(store: Any, other: Any, clock: Any) -> None:
    run = make(store)
    effects = store.workflows.effects
    begun = effects.begin(run.id, "comment", {"body": "hi", "n": 1})
    assert (begun.state, begun.attempts, begun.begun_at, begun.ended_at, begun.result) == ("begun", 1, clock(), None, None)
    clock.advance(seconds=3)
    done = effects.complete(run.id, "comment", HARD)
    assert (done.state, done.result, done.ended_at) == ("done", HARD, clock())
    assert [*done.result] == [*HARD]
    again = other.workflows.effects.begin(run.id, "comment", {"n": 1, "body": "hi"})
    assert again == done
    assert effects.complete(run.id, "comment", HARD) == done
    assert effects.get(run.id, "comment") == done
    with pytest.raises(Conflict, match="another result"):
        effects.complete(run.id, "comment", {"url": "y"})
    with pytest.raises(Conflict, match="done"):
        effects.fail(run.id, "comment", "no")
    assert effects.begin(run.id, "comment", {"n": 1, "body": "hi"}, retry="unknown") == done


def test_an_effect_that_began_and_did_not_end_is_unknown(store: Any, clock: Any) -> None:
    run = make(store)
    effects = store.workflows.effects
    effects.begin(run.id, "k")
    clock.advance(seconds=1)
    assert effects.begin(run.id, "k").state == "unknown"
    assert effects.begin(run.id, "k", retry="failed").state == "unknown"
    assert effects.get(run.id, "k").state == "begun"
    anew = effects.begin(run.id, "k", retry="unknown")
    assert (anew.state, anew.attempts, anew.begun_at) == ("begun", 2, clock())
    assert effects.complete(run.id, "k").result is None
    assert effects.begin(run.id, "k").state == "done"


def test_an_effect_that_failed_says_why_and_may_be_begun_anew(store: Any) -> None:
    run = make(store)
    effects = store.workflows.effects
    effects.begin(run.id, "k")
    failed = effects.fail(run.id, "k", "503")
    assert (failed.state, failed.error) == ("failed", "503")
    assert effects.fail(run.id, "k", "again") == failed
    assert effects.begin(run.id, "k") == failed
    anew = effects.begin(run.id, "k", retry="failed")
    assert (anew.state, anew.attempts, anew.error, anew.ended_at) == ("begun", 2, None, None)
    effects.fail(run.id, "k", "504")
    assert effects.complete(run.id, "k", 7).state == "done", "whoever failed can learn later that it happened"


def test_another_input_under_the_same_key_is_refused(store: Any) -> None:
    run = make(store)
    effects = store.workflows.effects
    effects.begin(run.id, "k", NESTED)
    for other in (None, {}, [NESTED], {**NESTED, "more": 1}):
        with pytest.raises(Conflict, match="another input"):
            effects.begin(run.id, "k", other, retry="unknown")
    assert effects.begin(make(store).id, "k", None).state == "begun", "keys are the run's own"


def test_effects_of_a_run_are_listed_and_go_with_it(store: Any, clock: Any) -> None:
    run = make(store)
    effects = store.workflows.effects
    assert effects.list(run.id) == []
    for key in ("b", "a", "c"):
        effects.begin(run.id, key)
        clock.advance(seconds=1)
    effects.complete(run.id, "a", "x")
    assert [(one.key, one.state) for one in effects.list(run.id)] == [("b", "begun"), ("a", "done"), ("c", "begun")]
    for verb, *arguments in (("list", "nowhere"), ("begin", "nowhere", "k"), ("get", run.id, "none")):
        with pytest.raises(NotFound):
            getattr(effects, verb)(*arguments)
    for verb in ("complete", "fail"):
        with pytest.raises(NotFound):
            getattr(effects, verb)(run.id, "none", "x")


def test_a_worker_that_lost_its_run_begins_nothing_but_tells_what_it_did(store: Any, clock: Any) -> None:
    lease = held(store, lease=timedelta(minutes=5))
    effects = store.workflows.effects
    with pytest.raises(LeaseLost):
        effects.begin(lease.run_id, "k")
    effects.begin(lease.run_id, "k", lease=lease)
    clock.advance(seconds=600)
    assert do(store, "claim", "w2", lease=timedelta(minutes=5)) is not None
    with pytest.raises(LeaseLost):
        effects.begin(lease.run_id, "k2", lease=lease)
    assert effects.complete(lease.run_id, "k", {"url": "x"}).state == "done"


@each(
    "arguments",
    [{"key": ""}, {"key": 7}, {"input": {1, 2}}, {"input": float("nan")}, {"retry": True}, {"retry": "always"}, {"run_id": ""}],
)
def test_bad_values_begin_nothing(store: Any, arguments: dict[str, Any]) -> None:
    run = make(store)
    with pytest.raises(InvalidValue):
        store.workflows.effects.begin(**{"run_id": run.id, "key": "k", **arguments})
    assert store.workflows.effects.list(run.id) == []


@every_way
def test_a_step_is_done_once(store: Any, portal: Portal) -> None:
    run, calls = make(store), []
    for expected in (True, False, False):
        with Around(store.step(run, "comment", {"n": 1}), portal) as step:
            assert step.due is expected
            if step.due:
                calls.append(1)
                step.result = {"url": "x"}
        assert step.result == {"url": "x"}
    assert len(calls) == 1


@every_way
def test_a_step_that_raised_is_due_again(store: Any, portal: Portal) -> None:
    run = make(store)
    with pytest.raises(ZeroDivisionError), Around(store.step(run.id, "k"), portal):
        raise ZeroDivisionError("by none")
    assert store.workflows.effects.get(run.id, "k").error == "ZeroDivisionError: by none"
    with Around(store.step(run.id, "k"), portal) as step:
        assert step.due
    assert store.workflows.effects.get(run.id, "k").attempts == 2


@every_way
def test_a_step_that_was_interrupted_is_unknown_until_somebody_decides(store: Any, portal: Portal) -> None:
    lease = held(store)
    with pytest.raises(KeyboardInterrupt), Around(store.step(lease, "k"), portal):
        raise KeyboardInterrupt
    with pytest.raises(EffectUnknown) as unknown, Around(store.step(lease, "k"), portal):
        raise AssertionError("not reached")
    assert (unknown.value.run_id, unknown.value.key, unknown.value.attempts) == (lease.run_id, "k", 1)
    with Around(store.step(lease, "k", retry=True), portal) as step:
        assert step.due
        step.result = 5
    with Around(store.step(lease, "k"), portal) as step:
        assert (step.due, step.result) == (False, 5)


@every_way
def test_an_effect_in_a_state_of_another_program_is_unknown(store: Any, raw: Raw, portal: Portal) -> None:
    run = make(store)
    with Around(store.step(run, "k"), portal) as step:
        step.result = 1
    raw.rows("UPDATE workflow_effects SET state = 'odd'")
    with pytest.raises(EffectUnknown), Around(store.step(run, "k"), portal):
        pass


def test_a_block_that_hung_tells_no_failure_of_the_attempt_that_others_began(store: Any, portal: Portal) -> None:
    run, effects = make(store), store.workflows.effects

    def others() -> None:
        assert effects.begin(run.id, "k", retry="unknown").attempts == 2
        raise TimeoutError

    def others_did_it() -> None:
        effects.begin(run.id, "k", retry="unknown")
        effects.complete(run.id, "k", 7)
        raise TimeoutError

    with pytest.raises(TimeoutError), Around(store.step(run, "k"), portal):
        others()
    assert effects.begin(run.id, "k").state == "unknown", "the second attempt may have done it"
    with pytest.raises(TimeoutError), Around(store.step(run, "k", retry=True), portal):
        others_did_it()
    assert effects.get(run.id, "k").result == 7


def test_a_failure_may_name_its_attempt(store: Any) -> None:
    run, effects = make(store), store.workflows.effects
    effects.begin(run.id, "k")
    again = effects.begin(run.id, "k", retry="unknown")
    assert effects.fail(run.id, "k", "503", attempt=1) == again
    assert effects.fail(run.id, "k", "503", attempt=2).state == "failed"
    done = effects.complete(run.id, "k")
    assert effects.fail(run.id, "k", "503", attempt=1) == done
    with pytest.raises(Conflict, match="done"):
        effects.fail(run.id, "k", "503", attempt=2)
    for attempt in (-1, "2", True, 2.0):
        with pytest.raises(InvalidValue, match="attempt"):
            effects.fail(run.id, "k", "503", attempt=attempt)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_exception_without_a_readable_message_is_a_failure_too(store: Any, portal: Portal) -> None:
    run = make(store)
    with pytest.raises(UnspeakableError), Around(store.step(run.id, "k"), portal):
        raise UnspeakableError
    assert store.workflows.effects.get(run.id, "k").error == "UnspeakableError: its message cannot be read"


@every_way
def test_a_result_is_checked_where_it_is_set(store: Any, portal: Portal) -> None:
    """Another result may be set then; without one the effect is unknown: it has happened, so that it is not done again."""
    run = make(store)
    with Around(store.step(run, "mended"), portal) as step:
        for bad in (object(), {1: 2}, float("nan"), "x" * 30_000_000):
            with pytest.raises((InvalidValue, PayloadTooLarge)):
                step.result = bad
        assert step.result is None
        step.result = {"url": "x"}
    with Around(store.step(run, "mended"), portal) as step:
        assert (step.due, step.result) == (False, {"url": "x"})
    with pytest.raises(InvalidValue), Around(store.step(run, "posted"), portal) as step:
        step.result = object()
    with pytest.raises(EffectUnknown), Around(store.step(run, "posted"), portal):
        pass
