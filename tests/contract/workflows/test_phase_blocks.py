"""`workflows.phases` and `store.phase`: a phase of a run that is done once, in two transactions."""

from decimal import Decimal
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, LeaseLost, NotFound, PayloadTooLarge
from persist.workflows.schemas import Outcome, Phase, RunStatus
from tests.async_portal import Portal
from tests.cases import each
from tests.contract.faces import every_way
from tests.contract.workflows.scenes import BAD_LABELS, HOUR, NOWHERE, Around, claim, do, end, held, make, start, stored


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


# ---------------------------------------------------------------- the verbs


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
    newer = claim(store, "w2")
    assert newer is not None
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


def test_nothing_is_written_for_bad_arguments(store: Any) -> None:
    run = make(store)
    for name in BAD_LABELS:
        with pytest.raises(InvalidValue):
            begin(store, run.id, name)
    with pytest.raises(NotFound):
        begin(store, NOWHERE)
    phase = begin(store, run.id)
    before = executions(store, run.id), stored(store, run.id)
    for bad in ({"output": 7}, {"cost_usd": -1.0}, {"input_tokens": 1.5}, {"entry": {"phase": "code"}}):
        with pytest.raises(InvalidValue):
            finish(store, phase, **bad)
    with pytest.raises(PayloadTooLarge):
        finish(store, phase, entry={"a": "x" * 2**20})
    with pytest.raises(InvalidValue):
        fail(store, phase, None)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InvalidValue):
        finish(store, "plan")  # type: ignore[arg-type]  # on purpose
    assert (executions(store, run.id), stored(store, run.id)) == before


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
    for write in (lambda: finish(store, phase), lambda: fail(store, phase)):
        with pytest.raises(NotFound, match="execution"):
            write()
    assert stored(store, run.id).phase_history == []


# ---------------------------------------------------------------- the block


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
def test_an_exception_that_is_no_text_is_stored_all_the_same(store: Any, portal: Portal) -> None:
    run = make(store)
    with pytest.raises(ValueError, match="half"), Around(store.phase(run, "plan"), portal):
        raise ValueError("half \ud83d and nul \x00" + "x" * 10_000)
    (execution,) = executions(store, run.id)
    assert execution.error.startswith("ValueError: half \ud83d and nul \x00xxx")
    assert len(execution.error) < 5_000


@every_way
def test_a_block_that_was_interrupted_leaves_the_phase_to_the_next_claim(store: Any, portal: Portal, clock: Any) -> None:
    lease = held(store)
    with pytest.raises(KeyboardInterrupt), Around(store.phase(lease, "plan"), portal):
        raise KeyboardInterrupt
    assert [one.outcome for one in executions(store, lease.run_id)] == [Outcome.RUNNING]
    clock.advance(seconds=HOUR.total_seconds())
    newer = claim(store, "w2")
    assert newer is not None
    with Around(store.phase(newer, "plan"), portal) as phase:
        assert phase.due


@every_way
def test_what_a_block_leaves_is_checked_where_it_is_said(store: Any, portal: Portal) -> None:
    """A typing error is told at once, not after the hour of work that it would cost."""
    run = make(store)
    bad = [
        ("input_token", 5),
        ("input_tokens", 1.5),
        ("cost_usd", Decimal("0.5")),
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
