"""Phases and effects of a run, by verbs and by blocks: each is done once, and what it left is known after a crash."""

from datetime import timedelta
from typing import Any

import pytest

from persist.errors import Conflict, EffectUnknown, InvalidValue, LeaseLost, NotFound, PayloadTooLarge
from persist.workflows.schemas import Outcome, Phase, RunStatus
from tests.async_portal import Portal
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.faces import every_way
from tests.contract.workflows.scenes import HOUR, NESTED, Around, do, end, held, make, start, stored, taken


def executions(store: Any, run_id: str) -> list[Any]:
    with store.read() as tx:
        found: list[Any] = tx.workflows.executions.for_run(run_id)
    return found


def begin(store: Any, run_id: str, name: str = "plan", **options: Any) -> Phase:
    with store.begin() as tx:
        phase: Phase = tx.workflows.phases.begin(run_id, name, **options)
    return phase


def finish(store: Any, phase: Phase, **options: Any) -> Any:
    with store.begin() as tx:
        return tx.workflows.phases.finish(phase, **options)


def fail(store: Any, phase: Phase, error: str = "boom", **options: Any) -> None:
    with store.begin() as tx:
        tx.workflows.phases.fail(phase, error, **options)


def test_a_phase_begins_as_an_execution_of_its_run(store: Any, other: Any, clock: Any) -> None:
    run = make(store, repo="acme/shop", issue_number=7)
    now = clock.advance(seconds=1)
    phase = begin(store, run.id, trigger_type="github")
    assert phase == Phase(run_id=run.id, name="plan", execution_id=phase.execution_id, output=None)
    assert phase.due
    (execution,) = executions(other, run.id)
    assert (execution.id, execution.skill, execution.trigger_id) == (phase.execution_id, "build:plan", run.trigger_id)
    assert (execution.trigger_type, execution.repo, execution.issue_number) == ("github", "acme/shop", 7)
    assert (execution.started_at, execution.outcome) == (now, Outcome.RUNNING)
    assert stored(other, run.id) == run


def test_what_it_left_is_stored_with_the_fact_that_it_is_done(store: Any, other: Any, clock: Any) -> None:
    run = make(store)
    phase = begin(store, run.id)
    now = clock.advance(seconds=1)
    done = finish(
        store,
        phase,
        output="the plan",
        entry={"files": 3},
        input_tokens=10,
        output_tokens=2,
        cost_usd=0.5,
        extension_status={"a": 1},
    )
    (execution,) = executions(other, run.id)
    assert (execution.outcome, execution.finished_at) == (Outcome.SUCCEEDED, now)
    assert (execution.input_tokens, execution.output_tokens, execution.cost_usd) == (10, 2, 0.5)
    assert execution.extension_status == {"a": 1}
    with other.read() as tx:
        assert tx.workflows.executions.output_text(execution.id) == "the plan"
    assert done == stored(other, run.id)
    (item,) = done.phase_history
    assert (item["phase"], item["files"], item["execution"]) == ("plan", 3, execution.id)
    assert done.current_phase == "plan"


def test_a_phase_that_is_done_is_not_due(store: Any) -> None:
    run, again = make(store), make(store)
    finish(store, begin(store, run.id), output="first")
    before = executions(store, run.id)
    assert begin(store, run.id) == Phase(run_id=run.id, name="plan", execution_id=None, output="first")
    assert executions(store, run.id) == before
    assert begin(store, run.id, "code").due
    assert begin(store, again.id).due  # a new run of the trigger repeats the phases of an older one


def test_a_failed_phase_is_due_again(store: Any) -> None:
    run = make(store)
    first = begin(store, run.id)
    fail(store, first, "503")
    (execution,) = executions(store, run.id)
    assert (execution.outcome, execution.error) == (Outcome.FAILED, "503")
    assert stored(store, run.id).phase_history == []
    second = begin(store, run.id)
    assert second.due
    assert second.execution_id != first.execution_id


def test_what_a_failed_attempt_left_is_no_output_of_the_phase(store: Any, clock: Any) -> None:
    """Also where it was made on a host whose clock is ahead, and so seems to be the newest."""
    run = make(store)
    clock.advance(seconds=2)
    with store.begin() as tx:
        tx.workflows.phases.fail(tx.workflows.phases.begin(run.id, "plan"), "503", output="half a plan")
    clock.advance(seconds=-2)
    finish(store, begin(store, run.id), output="the plan")
    assert begin(store, run.id).output == "the plan"


def test_a_phase_that_runs_is_refused(store: Any) -> None:
    run = make(store)
    begin(store, run.id)
    with pytest.raises(Conflict, match="running already"):
        begin(store, run.id)
    assert len(executions(store, run.id)) == 1


def test_a_phase_that_was_begun_by_the_verbs_of_executions_counts(store: Any) -> None:
    run = make(store)
    running = start(store, run)
    with pytest.raises(Conflict):
        begin(store, run.id)
    with store.begin() as tx:
        tx.workflows.executions.set_output(running, "by hand")
    end(store, running)
    assert begin(store, run.id).output == "by hand"


def test_only_the_holder_of_a_run_writes_its_phases(store: Any, clock: Any) -> None:
    lease = held(store)
    with pytest.raises(LeaseLost):
        begin(store, lease.run_id)
    phase = begin(store, lease.run_id, lease=lease)
    clock.advance(seconds=HOUR.total_seconds())
    newer = taken(store, "w2")
    before = executions(store, lease.run_id), stored(store, lease.run_id)
    for late in (None, lease):
        for write in (
            lambda late=late: begin(store, lease.run_id, "code", lease=late),
            lambda late=late: finish(store, phase, output="late", lease=late),
            lambda late=late: fail(store, phase, lease=late),
        ):
            with pytest.raises(LeaseLost):
                write()
    assert (executions(store, lease.run_id), stored(store, lease.run_id)) == before
    assert begin(store, lease.run_id, lease=newer).due  # the claim failed the older execution as stale


def test_a_phase_that_was_done_before_cannot_be_ended(store: Any) -> None:
    run = make(store)
    finish(store, begin(store, run.id))
    done = begin(store, run.id)
    with pytest.raises(InvalidValue, match="done before"):
        finish(store, done)
    with pytest.raises(InvalidValue, match="done before"):
        fail(store, done)


def test_an_execution_that_is_gone(store: Any, raw: Any) -> None:
    run = make(store)
    phase = begin(store, run.id)
    raw.rows("DELETE FROM executions")
    for write in (lambda: finish(store, phase), lambda: fail(store, phase), lambda: store.workflows.phases.finish(phase)):
        with pytest.raises(NotFound, match="execution"):
            write()
    assert stored(store, run.id).phase_history == []


@every_way
def test_a_block_is_done_once(store: Any, portal: Portal) -> None:
    lease = held(store)
    outputs: list[str | None] = []
    for _ in range(3):
        with Around(store.phase(lease, "plan"), portal) as phase:
            if phase.due:
                phase.output = f"plan {len(outputs)}"
                phase.use(cost_usd=0.25, output_tokens=3)
        outputs.append(phase.output)
    assert outputs == ["plan 0"] * 3
    (execution,) = executions(store, lease.run_id)
    assert (execution.outcome, execution.cost_usd, execution.output_tokens) == (Outcome.SUCCEEDED, 0.25, 3)
    assert do(store, "complete", lease).status == RunStatus.SUCCEEDED


@every_way
def test_an_exception_fails_the_phase_and_goes_on(store: Any, portal: Portal) -> None:
    run = make(store)
    with pytest.raises(ZeroDivisionError), Around(store.phase(run, "plan"), portal):
        _ = 1 / 0
    (execution,) = executions(store, run.id)
    assert (execution.outcome, execution.error) == (Outcome.FAILED, "ZeroDivisionError: division by zero")
    with Around(store.phase(run.id, "plan"), portal) as phase:
        assert phase.due


@every_way
def test_a_block_that_was_interrupted_leaves_the_phase_to_the_next_claim(store: Any, portal: Portal, clock: Any) -> None:
    lease = held(store)
    with pytest.raises(KeyboardInterrupt), Around(store.phase(lease, "plan"), portal):
        raise KeyboardInterrupt
    assert [one.outcome for one in executions(store, lease.run_id)] == [Outcome.RUNNING]
    clock.advance(seconds=HOUR.total_seconds())
    newer = taken(store, "w2")
    with Around(store.phase(newer, "plan"), portal) as phase:
        assert phase.due


@every_way
def test_what_a_block_leaves_is_checked_where_it_is_said(store: Any, portal: Portal) -> None:
    """A typing error is told at once, not after the hour of work that it would cost."""
    run = make(store)
    bad = [
        ("input_token", 5),
        ("input_tokens", 1.5),
        ("cost_usd", "0.5"),
        ("counted_elsewhere", 1),
        ("cost_usd", -1),
        ("turns", "3"),
        ("session_id", 5),
        ("model", {}),
        ("extension_status", object()),
        ("output", "a keyword of finish that is no total"),
    ]
    with Around(store.step(run, "k"), portal) as step, pytest.raises(AttributeError, match="reslut"):
        step.reslut = "lost"
    with Around(store.phase(run, "plan"), portal) as phase:
        with pytest.raises(AttributeError, match="outptu"):
            phase.outptu = "lost"
        phase.use(input_tokens=7)
        for name, value in bad:
            with pytest.raises(InvalidValue) as refused:
                phase.use(**{"turns": 9, name: value})
            assert refused.value.path.startswith(name)
        for output in ({"a": 1}, b"text", 5):
            with pytest.raises(InvalidValue):
                phase.output = output
        with pytest.raises(PayloadTooLarge):
            phase.output = "x" * (64 * 2**20 + 1)
        phase.output = "the plan"
    (execution,) = executions(store, run.id)
    assert (execution.outcome, execution.input_tokens, execution.turns) == (Outcome.SUCCEEDED, 7, None)
    with store.read() as tx:
        assert tx.workflows.executions.output_text(execution.id) == "the plan"


@every_way
@each("entry", [{"files": object()}, 5, {"text": "x" * 20_000_000}], ids=["no JSON", "no object", "too large"])
def test_a_refused_end_fails_the_execution_and_keeps_its_output(store: Any, portal: Portal, entry: Any) -> None:
    lease = held(store)
    with pytest.raises((InvalidValue, PayloadTooLarge)) as refused, Around(store.phase(lease, "plan"), portal) as phase:  # noqa: PT012  # leaving raises
        phase.output = "an hour's work"
        phase.entry = entry
    (execution,) = executions(store, lease.run_id)
    assert execution.outcome == Outcome.FAILED
    assert execution.error.startswith(type(refused.value).__name__)
    with store.read() as tx:
        assert tx.workflows.executions.output_text(execution.id) == "an hour's work"
        assert tx.workflows.executions.consecutive_failures(execution.skill) == 1
    with Around(store.phase(lease, "plan"), portal) as phase:
        assert phase.due


# Side effects of a run: each is done once, and what it returned is known after a crash.


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
